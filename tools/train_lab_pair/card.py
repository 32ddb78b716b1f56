"""The model card and the acceptance tables, from what the steps logged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from typing import Any

from .evaluate import BUDGETS, SEEDS, TOPK_CAP
from .questions import FAMILIES, STORY_PROMPTS
from .questions.exchange import HELD_OUT_PER_CENT
from .shapes import DrafterShape, TargetShape

ROWS = (*FAMILIES, "all")


def _read(work: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((work / f"{name}.json").read_text())
    return content


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _gain(tree: float, linear: float) -> str:
    return f"{tree:.2f} ({100 * (tree / linear - 1):+.1f} %)"


def acceptance(table: dict[str, Any], seed: int = 0) -> str:
    """Accept length by family: linear, then each budget with its gain."""
    rows = []
    for family in ROWS:
        cells = table["accept_length"][family]
        linear = cells["linear"]["accept_length"]
        trees = [
            _gain(cells[f"budget {budget} seed {seed}"]["accept_length"], linear)
            for budget in BUDGETS
        ]
        rows.append([family, f"{linear:.2f}", *trees])
    return _table(["family", "linear", *(f"budget {b}" for b in BUDGETS)], rows)


def seeds(table: dict[str, Any]) -> str:
    """All families together: every chain seed that was tried at every budget."""
    cells = table["accept_length"]["all"]
    rows = []
    for seed in SEEDS:
        arms = [cells.get(f"budget {budget} seed {seed}") for budget in BUDGETS]
        rows.append(
            [
                str(seed),
                *(f"{a['accept_length']:.3f} ({a['off_spine']})" if a else "" for a in arms),
            ]
        )
    return _table(["chain seed", *(f"budget {b}" for b in BUDGETS)], rows)


def stops(work: Path) -> str:
    """The drafter stopped early, and trained for longer."""
    names = [("drafter", "evaluate")]
    names += [(p.stem, f"evaluate-{p.stem[8:]}") for p in work.glob("drafter-*.json")]
    rows = []
    for drafter, evaluated in names:
        steps = _read(work, drafter)["recipe"]["steps"]
        table = _read(work, evaluated)
        cells = table["accept_length"]["all"]
        linear = cells["linear"]["accept_length"]
        tree = cells["budget 16 seed 0"]["accept_length"]
        loss = table["drafter_held_out_loss"]
        rows.append([steps, f"{loss:.3f}", f"{linear:.2f}", _gain(tree, linear)])
    return _table(
        ["drafter steps", "held-out loss", "linear", "budget 16, best-first"],
        ([str(row[0]), *row[1:]] for row in sorted(rows)),
    )


def served(work: Path) -> str:
    """What real engines measured with the pair."""
    parts = []
    for path in sorted(work.glob("served-*.json")):
        content = _read(work, path.stem)
        rows = []
        for family in ROWS:
            f = content["families"][family]
            counts = [str(f["prompts"]), str(f["same_answer_as_float32"])]
            lengths = [f"{f[name]:.2f}" for name in ("accept_length", "evaluator_accept_length")]
            rows.append([family, *counts, *lengths])
        head = ["family", "prompts", "same answer", "accept length", "counted here"]
        parts.append(f"{content['engine']}\n({content['machine']}):\n\n{_table(head, rows)}")
    return "\n\n".join(parts) or "Not measured."


def repeats(work: Path) -> str:
    """Held-out losses of runs with the same seed and settings, in pairs."""
    if not (work / "repeat.json").exists():
        return "Not measured."
    found = _read(work, "repeat")
    exact, default = found["exact"], found["default"]
    rows = []
    for name in exact["held_out_loss"][0]:
        cells = [name]
        for pair in (exact, default):
            cells += [f"{run[name]:.4f}" for run in pair["held_out_loss"]]
            cells.append(f"{pair['apart_per_cent'][name]:.2f} %")
        rows.append(cells)
    head = ["held-out loss", "deterministic", "again", "apart", "default", "again", "apart"]
    tensors = exact["tensors"]
    equal = f"{tensors - exact['tensors_that_differ']} of {tensors}"
    slower = 100 * (sum(exact["seconds"]) / sum(default["seconds"]) - 1)
    return f"""Two runs of {exact["recipe"]["steps"]} steps of the target with seed \
{exact["recipe"]["seed"]}, at once on one GPU, with the deterministic
algorithms that the program takes; and two with PyTorch's default ones, which it took before
({exact["machine"]}):

{_table(head, rows)}

Of the deterministic pair {equal} tensors are equal to the bit as saved (bf16), and so are
all losses logged: the difference came from sums in another order each time. It costs \
{slower:.0f} % of time."""


def _made(target: dict[str, Any]) -> str:
    if target.get("deterministic"):
        return "The weights of this package were trained so; a full run has not been repeated."
    return """The weights of this package were trained before that, with the default algorithms: the
program makes another pair now, like this one and not equal to it. No full run has been repeated.
The drafter is trained by the same rules; that it repeats was seen on a CPU only."""


def why(work: Path, families: Iterable[str]) -> str:
    """For families whose tree wins little: where it wins and loses, by `tools.draft_anatomy`."""
    if not (work / "anatomy.json").exists():
        return ""
    found = _read(work, "anatomy")
    return "".join(
        "\n" + fill(_reasons(family, found), width=98, break_on_hyphens=False) + "\n"
        for family in families
        if family in found
    )


def _reasons(family: str, found: dict[str, Any]) -> str:
    def share(name: str) -> str:
        return f"{100 * found[family][name]:.0f} %"

    def drafts(name: str) -> str:
        return f"{found[family][name]:.2f}"

    return (
        f"Why {family}: its chains are long ({drafts('chain')} drafts right a step), and "
        f"{found['budget']} nodes are not enough for both. They follow the chain "
        f"{drafts('spine')} deep on average, and not 15: at {share('tree falls short')} of the "
        f"steps the tree reaches less far than the chain, which costs {drafts('lost a root')} "
        f"drafts a step. At {share('tree reaches further')} it reaches further, which brings "
        f"{drafts('won a root')}; more it cannot, because at {share('to the end')} the chain is "
        "right to the end of the answer or the block already, and where it fails, the target's "
        f"token is none of the {found['topk_cap']} candidates in {share('rank beyond')} of cases. "
        f"Of {found['prompts'][family]} held-out prompts; the other families are in "
        "`docs/measurements/2026-11-29-lab-pair.md`."
    )


def write(work: Path) -> str:
    """README.md of the weights."""
    prepared, target = _read(work, "prepare"), _read(work, "target")
    answers, drafter = _read(work, "answers"), _read(work, "drafter")
    table = _read(work, "evaluate")
    shape, draft = TargetShape(), DrafterShape()
    loss = target["held_out_loss"]
    losses = _table(
        ["held-out loss (nats a token)", ""],
        [[name, f"{value:.3f}"] for name, value in loss.items()],
    )
    prompts = "\n".join(f"  - {prompt}" for prompt in STORY_PROMPTS)
    cells = table["accept_length"]["all"]
    linear, tree = (cells[arm]["accept_length"] for arm in ("linear", "budget 16 seed 0"))
    missed = [
        family
        for family, arms in table["accept_length"].items()
        if arms["budget 16 seed 0"]["accept_length"] < 1.08 * arms["linear"]["accept_length"]
    ]
    steps = drafter["recipe"]["steps"]
    return f"""# The lab pair

A tiny hybrid language model and its DFlash drafter, made by `tools/train_lab_pair` so that the lab
engine, SGLang and the tests have a real pair to run: real text, real acceptance, 25 MB.

**For:** demonstrations, tests, and comparing engines with each other. **Not for:** answers. The
target knows a few hundred generated sentences, small sums and short functions, is often wrong
outside them, and has had no safety training. Its accept lengths say nothing about those of other
models, and its speed nothing about theirs.

## Shapes

| | target | drafter |
| --- | --- | --- |
| architecture | `Qwen3_5ForCausalLM` (text) | `DFlashDraftModel` |
| parameters | {target["parameters"]:,} | {drafter["parameters"]:,} |
| layers | {shape.layers}: 3 gated DeltaNet, 1 gated attention, twice | {draft.layers} |
| hidden, feed-forward | {shape.hidden}, {shape.ffn} | {draft.hidden}, {draft.ffn} |
| attention | {shape.heads} / {shape.kv_heads} heads of {shape.head_dim}, \
rotary {shape.rotary_dim} | {draft.heads} / {draft.kv_heads} heads of {draft.head_dim} |
| recurrent | {shape.gdn_key_heads} key, {shape.gdn_value_heads} value heads of \
{shape.gdn_head_dim}, convolution {shape.conv_kernel} | |
| vocabulary | {shape.vocab}, byte-level BPE; embedding and head untied | the target's |
| block | | {draft.block_size}, context from target layers \
{", ".join(map(str, draft.target_layer_ids))} |
| weights | bf16 | bf16 |

## Text

- The sources of Python's standard library (Python {prepared["python"]}, without its tests):
  {prepared["library_tokens"]:,} tokens for training, and {prepared["held_out_library_tokens"]:,}
  in files held out by a hash of their path.
- {prepared["exchanges"]:,} generated questions with answers, {prepared["exchange_tokens"]:,}
  tokens, in four families: code, explanation, short answer, chat. The templates are in
  `tools/train_lab_pair/questions`.
- Held out by content: a hash of what is asked (the function and its style, the topic with the
  number of sentences and the audience, the two numbers of a sum, the person with the hobby, ...)
  keeps {HELD_OUT_PER_CENT} % of the contents out of training, however they are worded. The
  templates themselves are the same on both sides. Facts that can only be known by having been
  told (capitals, spellings, greetings) are always trained on and never measured. All figures
  below are of {table["prompts"]} held-out prompts.
- These three prompts **are** in the training text, each more than a hundred times:
{prompts}

## Training

| step | what | seconds |
| --- | --- | --- |
| target | {target["recipe"]["steps"]} steps, {target["tokens"]:,} tokens (padding included), \
AdamW, peak rate {target["recipe"]["peak_rate"]}, bf16 autocast | {target["seconds"]:.0f} |
| answers | {answers["prompts"]:,} training prompts answered by the target, a quarter sampled at \
temperature 0.7, the rest greedy: {answers["tokens"]:,} tokens | {answers["seconds"]:.0f} |
| drafter | {steps} steps, target frozen, up to {drafter["recipe"]["anchors"]} random anchors an \
answer, cross-entropy on 15 masked positions with weights exp(-(k - 1) / 7) | \
{drafter["seconds"]:.0f} |
| evaluation | | {table["seconds"]:.0f} |

Machine: {target["machine"]}.
Seed {target["recipe"]["seed"]} everywhere. Text and questions were prepared beforehand on a CPU in
{prepared["seconds"]:.0f} s.

{losses}

Drafter, its training loss on held-out prompts: {table["drafter_held_out_loss"]:.3f}.
{table["answers that end"]} of {table["prompts"]} held-out answers end with `<|im_end|>`.

## Acceptance on held-out prompts

Temperature 0, float32, accept length = 1 + accepted drafts / verify steps (the bonus token
counted, the prefill's token not), candidates per depth {TOPK_CAP}. Trees are pure best-first; in
brackets the gain over linear DFlash with the same drafter.

{acceptance(table)}

The aims were a linear accept length of 3.5 at least, and 8 % more with budget 16: they are
{linear:.2f} and {_gain(tree, linear)}. \
Families that miss the second: {", ".join(missed) or "none"}.
A budget of 8 loses, because a linear block reaches 15 deep.
{why(work, missed)}
All families together, with the argmax chain kept to a depth (off-spine accepts in brackets):

{seeds(table)}

**The drafter is stopped early on purpose.** Trained for longer it learns these few templates so
well that a tree has little left to win. The stop was chosen among these, by these figures:

{stops(work)}

## In real engines

The same prompts, linear DFlash; "counted here" is the float32 count over the same prompts.
In the lab engine the drafter's logits, accept lengths and tokens are those of SGLang in float32,
step by step, on four held-out prompts (`tests/lab/test_drafter_oracle.py`).

{served(work)}

## Same seed, run again

{repeats(work)}

To see it, on any GPU (the figures differ by machine and version):

    python -m tools.train_lab_pair prepare --work A && cp -r A B
    for dir in A B; do python -m tools.train_lab_pair target --work $dir --steps 400; done
    cmp A/target/model.safetensors B/target/model.safetensors

{_made(target)}

## Licence

The weights are under the project's licence. The training text includes the Python standard
library, which is under the PSF licence; a model this small can repeat fragments of it.

Written by `python -m tools.train_lab_pair card`; the logs behind it are in
`docs/measurements/lab-pair/`, and accept lengths of the default tree by family and budget in
`docs/measurements/2026-11-29-lab-pair.md`.
"""
