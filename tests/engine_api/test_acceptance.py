from ddtree_ops_cli.engine_api.acceptance import Acceptance, merged

TREE = {
    "completion_tokens": 10,
    "spec_verify_ct": 3,
    "spec_num_correct_drafts": 6,
    "spec_num_proposed_drafts": 48,
    "spec_num_off_spine_drafts": 2,
    "spec_accept_length": 10 / 3,
}


def test_accept_length_leaves_the_prefill_token_out() -> None:
    found = Acceptance.of(TREE)

    assert found == Acceptance(verify_steps=3, correct_drafts=6, proposed_drafts=48, off_spine=2)
    assert found.accept_length == 3.0  # the server's own figure would be 3.33


def test_plain_decoding_has_no_acceptance() -> None:
    assert Acceptance.of({"completion_tokens": 10, "prompt_tokens": 3}) is None


def test_an_answer_that_ended_with_its_prefill_has_no_acceptance() -> None:
    assert Acceptance.of(TREE | {"spec_verify_ct": 0}) is None


def test_a_drafter_that_is_never_right_has_accept_length_one() -> None:
    found = Acceptance.of(TREE | {"spec_num_correct_drafts": 0})

    assert found is not None
    assert found.accept_length == 1.0


def test_merging_weights_by_verify_steps() -> None:
    parts = [Acceptance(1, 9, 16, 0), None, Acceptance(9, 0, 144, 3)]

    both = merged(parts)

    assert both == Acceptance(10, 9, 160, 3)
    assert both.accept_length == 1.9


def test_a_part_without_off_spine_count_makes_the_total_unknown() -> None:
    both = merged([Acceptance(1, 2, 15, None), Acceptance(1, 2, 16, 1)])

    assert both is not None
    assert both.off_spine is None


def test_merging_nothing_gives_nothing() -> None:
    assert merged([]) is None
    assert merged([None, None]) is None
