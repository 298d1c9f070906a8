#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# progress.sh NOTE COMMAND...: runs the command and, while it runs, prints every 20 seconds how long it has taken and
# the note, so that a long silence is not taken for a hang. Exits as the command does.
note=$1
shift
start=$(date +%s)

tick() {
	next=20
	while sleep 1 3>&- && kill -0 $$; do
		elapsed=$(($(date +%s) - start))
		[ $elapsed -ge $next ] || continue
		echo "... ${elapsed} s: $note" >&3
		next=$((next + 20))
	done
}

tick 3>&2 >/dev/null 2>&1 </dev/null &
ticker=$!
trap 'kill $ticker' EXIT
trap 'exit 130' INT TERM
"$@"
