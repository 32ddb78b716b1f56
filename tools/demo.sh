#!/usr/bin/env bash
# The whole story on this machine: plan, deploy, status, proof, stop. Ends with the first failure.
set -euo pipefail

run() {
  printf '\n$ %s\n' "$*"
  "$@"
}

trap 'ddtree stop lab --service ddtree >/dev/null 2>&1 || true' EXIT
run ddtree deploy lab --budget 16 --dry-run
run ddtree deploy lab --budget 16
run ddtree status lab
run ddtree smoke lab --service ddtree
run ddtree bench lab --service ddtree --compare linear --suite story
run ddtree stop lab --service ddtree
trap - EXIT
