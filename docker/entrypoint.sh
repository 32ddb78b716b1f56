#!/bin/sh
# Looks at GPU, driver and libraries for about a second, then becomes the command.
# Exit code 8: they do not fit together, and the lines above say why. DDTREE_DOCTOR=off skips it.
set -eu
if [ "${DDTREE_DOCTOR:-on}" != off ]; then
  python3 /opt/ddtree/doctor.py --quick >&2 || {
    code=$?
    echo "ddtree: the engine is not started (exit code $code); DDTREE_DOCTOR=off starts it anyway" >&2
    exit "$code"
  }
fi
exec "$@"
