// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// On a machine that is busy with other things an answer can miss the fraction of a second for which the
// daemons let the kubelet wait. What is given then need not be the best, and is counted; everything else is
// judged. How many are late depends on the machine, and so nothing is judged by that.

// isLate reports whether the daemons chose without knowing everything, because an answer did not come in
// time.
func isLate(p rig.Placement) bool { return slices.ContainsFunc(p.Log, tellsLateness) }

// signs of an answer that was late, in the daemons' log.
var signs = []string{
	"no answer in time", "the disk does not answer", "have no answer yet", "deadline exceeded",
	codes.DeadlineExceeded.String(), codes.ResourceExhausted.String(),
}

func tellsLateness(line pair.Line) bool {
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(line.Text, sign) })
}

// questions counts those to the daemons by what a source of intent told of them.
type questions struct {
	told int
	// not told, since the source was late: then, or so short a time ago that it was left alone
	late   int
	untold []pair.Line // not told, though it was not late
}

func countQuestions(lines []pair.Line, source string) (q questions) {
	for _, line := range lines {
		switch {
		case line.Message != "preferred":
		case line.ToldBy(source):
			q.told++
		case tellsLateness(line) || leftAlone(lines, source, line.Time) ||
			leftAlone(lines, source, line.Time.Add(-system.QuestionLimit)): // when it was read, at the earliest
			q.late++
		default:
			q.untold = append(q.untold, line)
		}
	}
	return q
}

// leftAlone reports whether a source was not asked at a moment since it had been late: a daemon says when
// that begins and when it ends.
func leftAlone(lines []pair.Line, source string, at time.Time) bool {
	since := map[string]bool{} // by daemon
	for _, line := range lines {
		if line.Source != source || line.Time.After(at) {
			continue
		}
		switch {
		case strings.HasPrefix(line.Message, "source of intent not available"):
			since[line.Daemon] = tellsLateness(line)
		case line.Message == "source of intent available again":
			delete(since, line.Daemon)
		}
	}
	for _, late := range since {
		if late {
			return true
		}
	}
	return false
}
