#!/bin/sh
# Runs tools/setup.py under the first Python that is new enough for Remuda.
cd "$(dirname "$0")/.." || exit 1
for python in python3 python3.13 python3.12 python3.11; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        exec "$python" tools/setup.py "$@"
    fi
done
echo "setup: Remuda needs Python 3.11 or newer and found none; run: sudo apt-get install -y python3 python3-venv" >&2
exit 1
