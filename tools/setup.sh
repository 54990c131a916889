#!/bin/sh
# Runs tools/setup.py under the best Python on the PATH that is new enough for Remuda. The best is the system's own: distributions
# compile theirs with profile-guided optimization, version managers do not unless they are told to, and that makes a herd start with
# a sixth less processor time.
cd "$(dirname "$0")/.." || exit 1

# Prints the first Python on the PATH for which this expression is true.
find_python() {
    for name in python3 python3.13 python3.12 python3.11; do
        (IFS=:; for directory in $PATH; do echo "$directory/$name"; done)
    done | while read -r python; do
        if "$python" -c "import sys; sys.exit(not ($1))" 2>/dev/null; then
            echo "$python"
            break
        fi
    done
}

is_new='sys.version_info >= (3, 11)'
python=$(find_python "$is_new and sys.prefix == '/usr' and __import__('ensurepip')")
[ -n "$python" ] || python=$(find_python "$is_new")
if [ -z "$python" ]; then
    echo "setup: Remuda needs Python 3.11 or newer and found none; run: sudo apt-get install -y python3 python3-venv" >&2
    exit 1
fi
exec "$python" tools/setup.py "$@"
