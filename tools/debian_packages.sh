#!/usr/bin/env bash
# debian_packages.sh TARGET PACKAGE...: has Debian's packages installed for a target of the Makefile. Installs what is
# missing as root; otherwise, or where there is no Debian, says what is missing and fails.
set -euo pipefail
target=$1
shift

missing=()
for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "make $target needs Debian's packages ${missing[*]}, and this is no Debian: nothing is tested" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "make $target needs Debian's packages, and only root can install them: apt-get install ${missing[*]}" >&2
    echo "nothing is tested" >&2
    exit 1
fi
echo "make $target installs Debian's packages ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null; }
# The list of packages may be old, or not there at all.
install 2>/dev/null || { apt-get update -qq && install; }
