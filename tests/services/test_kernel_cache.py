from __future__ import annotations

import io
import tarfile

from ddtree_ops_cli.services.kernel_cache import opened, volume

DIGEST = "sha256:0123456789ab" + 52 * "0"


def test_another_image_architecture_or_user_has_kernels_of_its_own() -> None:
    assert volume(DIGEST, "12.0", None) == "ddtree-kernels-0123456789ab-sm120"
    assert volume(DIGEST, "9.0", None) == "ddtree-kernels-0123456789ab-sm90"
    assert volume("sha256:fedcba987654" + 52 * "0", "12.0", None) == (
        "ddtree-kernels-fedcba987654-sm120"
    )
    assert volume(DIGEST, "12.0", "1000:1001") == "ddtree-kernels-0123456789ab-sm120-1000.1001"
    assert volume(DIGEST, None, "sglang") == "ddtree-kernels-0123456789ab-smunknown-sglang"


def test_the_folder_alone_is_opened_and_none_above_it() -> None:
    with tarfile.open(fileobj=io.BytesIO(opened("/opt/kernels of mine/"))) as archive:
        [entry] = archive.getmembers()
    assert (entry.name, entry.isdir(), entry.mode) == ("opt/kernels of mine", True, 0o1777)
