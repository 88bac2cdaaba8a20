#!/bin/sh
# Ends with the exit code of gpudoctor about this image. GPU, PYTHON, VERSION and PYZ: see gpudoctor.pkr.hcl.
set -eu
: "${GPU:?}" "${PYTHON:?}"
FOLDER=${FOLDER:-/usr/share/gpudoctor}
export GPUDOCTOR_HISTORY=off # what the builder was is no business of the machines to come

mkdir -p "$FOLDER"
if [ -n "${PYZ:-}" ]; then
    doctor() { python3 "$PYZ" "$@"; }
else
    python3 -m venv "${PREFIX:=/opt/gpudoctor}"
    "$PREFIX/bin/pip" install --quiet "gpudoctor==$VERSION"
    doctor() { "$PREFIX/bin/gpudoctor" "$@"; }
fi

# The kernel that the image will start, which need not be the builder's.
kernel=$(find /lib/modules -mindepth 1 -maxdepth 1 -printf '%f\n' | sort --version-sort | tail -n 1)

status=0
if [ "$GPU" = here ]; then
    doctor check --python "$PYTHON" --json >"$FOLDER/image.json" || status=$?
elif driver=$(modinfo --set-version "$kernel" --field version nvidia); then
    "$PYTHON" -m pip freeze >"$FOLDER/installed.txt"
    # A build such as 2.9.0+cu128 came from torch's own index; the file has to say so to be understood.
    sed -n 's|^torch==.*+\([a-z0-9.]*\)$|--extra-index-url https://download.pytorch.org/whl/\1|p' \
        "$FOLDER/installed.txt" >"$FOLDER/requirements.txt"
    cat "$FOLDER/installed.txt" >>"$FOLDER/requirements.txt"
    release=$("$PYTHON" -c 'import platform; print(platform.python_version())')
    machine="gpu=$GPU,driver=$driver,python=$release,arch=$(uname -m)"
    doctor read "$FOLDER/requirements.txt" --for "$machine" --json >"$FOLDER/image.json" || status=$?
else
    echo "No nvidia module is built for kernel $kernel: an image without a driver" >&2
    exit 1
fi
doctor read "$FOLDER/image.json" || :
exit "$status"
