// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ask starts a command of tandem on a node, in the pod of the first daemon that can be asked: all of a node
// know the same. It returns what the command prints, and who answered.
func (c *Cluster) ask(
	ctx context.Context, daemons []Daemon, args func(Daemon) []string, stdin []byte,
) (printed []byte, by Daemon, err error) {
	var failed []string
	running := 0
	for _, d := range daemons {
		if d.Trouble == "" {
			running++
		}
	}
	for _, d := range daemons {
		if d.Trouble != "" {
			failed = append(failed, fmt.Sprintf("%s/%s: %s", d.Namespace, d.Pod, d.Trouble))
			continue
		}
		what := command{args: append([]string{"tandem"}, args(d)...)}
		if stdin != nil {
			what.stdin = bytes.NewReader(stdin)
		}
		printed, err := c.run(ctx, d, c.options.Timeout/time.Duration(running), what)
		var exit *ExitError
		switch {
		case err == nil:
			return printed, d, nil
		case errors.As(err, &exit) && len(printed) > 0: // a code that tells what was found
			return printed, d, err
		default:
			failed = append(failed, err.Error())
		}
	}
	return nil, Daemon{}, errors.New(strings.Join(failed, "; "))
}
