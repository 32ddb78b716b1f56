from __future__ import annotations

import dataclasses

import pytest

from ddtree_ops_cli.errors import UsageError
from ddtree_ops_cli.services.runtimes import Instance
from ddtree_ops_cli.services.selection import place, select
from tests.services.test_labels import LABELS


def instance(service: str, gpu: int) -> Instance:
    labels = dataclasses.replace(LABELS, service=service, gpu=gpu)
    return Instance(labels, "running", "pid 1", "http://127.0.0.1:1", 0.0, (), {})


TREE_0, LINEAR_1, TREE_2 = instance("ddtree", 0), instance("linear", 1), instance("ddtree", 2)


def test_a_lone_service_needs_no_flag() -> None:
    assert select([LINEAR_1], host="lab", service=None, gpu=None) is LINEAR_1


def test_service_and_gpu_narrow_the_choice() -> None:
    everything = [TREE_0, LINEAR_1, TREE_2]
    assert select(everything, host="lab", service="linear", gpu=None) is LINEAR_1
    assert select(everything, host="lab", service="ddtree", gpu=2) is TREE_2


def test_an_ambiguous_choice_is_refused_with_the_list() -> None:
    with pytest.raises(UsageError, match="ddtree on GPU 0, ddtree on GPU 2; say which"):
        select([TREE_0, LINEAR_1, TREE_2], host="lab", service="ddtree", gpu=None)


def test_a_choice_that_leaves_nothing_says_what_there_is() -> None:
    with pytest.raises(UsageError, match="no service plain on GPU 3 is deployed; there is: linear"):
        select([LINEAR_1], host="lab", service="plain", gpu=3)
    with pytest.raises(UsageError, match="`ddtree deploy lab` starts one"):
        select([], host="lab", service=None, gpu=None)


def test_a_service_stays_on_its_gpu_and_a_new_one_takes_the_first_free() -> None:
    assert place([TREE_0, LINEAR_1], host="lab", service="linear", gpus=4, held={}) == 1
    assert place([TREE_0, TREE_2], host="lab", service="plain", gpus=4, held={}) == 1


def test_a_full_host_and_a_service_on_two_gpus_are_refused() -> None:
    with pytest.raises(UsageError, match="each of the 2 GPUs has a service"):
        place([TREE_0, LINEAR_1], host="lab", service="plain", gpus=2, held={})
    with pytest.raises(UsageError, match="service ddtree is on GPUs 0, 2"):
        place([TREE_0, TREE_2], host="lab", service="ddtree", gpus=4, held={})
