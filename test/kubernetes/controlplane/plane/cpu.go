// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of times in /proc: USER_HZ, which is 100 on all Linux architectures.
const tick = 10 * time.Millisecond

// cpuTime returns the sum of utime and stime of /proc/PID/stat (proc_pid_stat(5)). Both follow the program's
// name in brackets, which may contain any characters.
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
