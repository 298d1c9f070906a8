#!/bin/sh
# tmpdir.sh: prints the folder in memory for the files of tests and of the go command that runs them. It prints nothing where the user has
# set TMPDIR, or where the folder has less than 6 GB (as in most containers) or starts no programs.
dir=/dev/shm
[ -z "$TMPDIR" ] || exit 0
free=$(df -k --output=avail "$dir" 2>/dev/null | tail -n 1)
[ "${free:-0}" -gt 6000000 ] || exit 0
try=$(mktemp "$dir/try.XXXXXX" 2>/dev/null) || exit 0
printf '#!/bin/sh\n' >"$try" && chmod 700 "$try" && "$try" 2>/dev/null && echo "$dir"
rm -f "$try"
