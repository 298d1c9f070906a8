// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of times in /proc: USER_HZ, which is 100 wherever Linux runs.
const tick = 10 * time.Millisecond

// cpuTime is utime and stime of /proc/PID/stat (proc_pid_stat(5)). They are counted after the program's name,
// which may hold anything, in brackets.
func cpuTime(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("read /proc/%d/stat: %d fields after the name, not 13", pid, len(fields))
	}
	var spent time.Duration
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}
		spent += time.Duration(ticks) * tick
	}
	return spent, nil
}
