"""The shape of each text that a profile may hold: a pattern, and the words that describe it."""

from __future__ import annotations

LINE = r"^[^\n\r]+$"
LINE_FORM = "one line of text"

NAME = r"^[a-z0-9][a-z0-9._-]*$"
NAME_FORM = "a name of lower-case letters, digits, '.', '_' and '-'"

# No leading '-' and no shell metacharacter: these two reach the command line of ssh.
ADDRESS = r"^(?:[A-Za-z0-9][A-Za-z0-9._-]{0,252}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$"
ADDRESS_FORM = (
    "a host name, an IP address or a name from your SSH configuration, without user@ and :port"
)
USER = r"^[A-Za-z_][A-Za-z0-9._-]{0,63}$"
USER_FORM = "a login name of letters, digits, '.', '_' and '-'"

WEIGHTS = (
    r"^(?:lab:(?:target|drafter)|/[^\x00-\x1f]+"
    r"|[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)$"
)
WEIGHTS_FORM = (
    "an absolute path on the host, a Hugging Face id like org/name, or lab:target, lab:drafter"
)
REVISION = r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"
REVISION_FORM = "a commit, tag or branch"
SERVED_NAME = r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"
SERVED_NAME_FORM = "an id of letters, digits, '.', '_', '/' and '-'"

STATE_DIRECTORY = r"^(?:~/|/)[^\x00-\x1f]+$"
STATE_DIRECTORY_FORM = "an absolute path on the host, or one that begins with ~/"

IMAGE = r"^[a-z0-9][A-Za-z0-9._/:-]*(?:@sha256:[0-9a-f]{64})?$"
IMAGE_FORM = "an image like repository:tag or repository@sha256:..."
SIZE = r"^[1-9][0-9]*[kmg]$"
SIZE_FORM = "a size like 512m or 16g"
CONTAINER_USER = r"^[0-9a-z_][0-9a-z_-]*(?::[0-9a-z_][0-9a-z_-]*)?$"
CONTAINER_USER_FORM = "a user like 1000, 1000:1000 or sglang"
MOUNT = r"/[^:\x00-\x1f]*:/[^:\x00-\x1f]+(?::ro)?"
MOUNT_FORM = "HOST-PATH:CONTAINER-PATH, both absolute, with :ro behind for one that is only read"
FOLDER = r"^/[^:\x00-\x1f]+$"
FOLDER_FORM = "an absolute path"
ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"

# What the profile says in another key, or what may not be said at all: two ways to say one thing
# would let the command line of the engine disagree with what `ddtree status` shows.
OWNED_FLAGS = {
    "--model-path": "the model profile's target",
    "--model": "the model profile's target",
    "--revision": "the model profile's target_revision",
    "--served-model-name": "the model profile's served_name",
    "--host": "the host profile's bind",
    "--port": "the host profile's base_port",
    "--context-length": "engine.context_length",
    "--max-running-requests": "engine.max_running_requests",
    "--attention-backend": "engine.attention_backend",
    "--mem-fraction-static": "engine.mem_fraction_static",
    "--random-seed": "engine.random_seed",
    "--page-size": "engine.page_size",
    "--speculative-algorithm": "algorithm",
    "--speculative-draft-model-path": "the model profile's drafter",
    "--speculative-draft-model-revision": "the model profile's drafter_revision",
    "--speculative-ddtree-budget": "speculative.budget",
    "--speculative-ddtree-topk-cap": "speculative.topk_cap",
    "--speculative-ddtree-chain-seed": "speculative.chain_seed",
    "--speculative-ddtree-mode": "speculative.mode",
    "--speculative-ddtree-allow-hybrid-unsafe": "speculative.allow_hybrid_unsafe",
}
