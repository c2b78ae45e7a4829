#!/usr/bin/env bash
# A plan on two hosts: hosts.sh PLAN HOST1 HOST2, in a folder that both share. ADDRESSES may say how ranks reach them, where that is
# not their name: ADDRESSES="10.0.0.1 10.0.0.2". REMOTE_SHELL may be any way to a host that hands its standard input on.
set -euo pipefail
read -r -a addresses <<< "${ADDRESSES:-$2 $3}"
exec strategist run "$1" --hosts "$2=${addresses[0]},$3=${addresses[1]}" \
  --remote-shell "${REMOTE_SHELL:-ssh -o BatchMode=yes {host\} {command\}}"
