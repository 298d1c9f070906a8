// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// colours finds the coloured words of a text.
var colours = regexp.MustCompile(`\x1b\[(3\d)m(.*?)\x1b\[0m`)

// colouredWords returns the coloured words of a text, each once.
func colouredWords(text string) (words []string) {
	names := map[string]string{"31": "red", "32": "green", "33": "yellow"}
	for _, match := range colours.FindAllStringSubmatch(text, -1) {
		words = append(words, names[match[1]]+" "+match[2])
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// TestVerdicts: the words that judge have a colour in what the commands print. Other tests compare the same
// files with the output of the commands.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file    string
		command string
		want    []string
	}{
		{"doctor-reports.txt", "doctor",
			[]string{"green No problem", "red ERROR", "yellow UNKNOWN", "yellow WARNING"}},
		{"verify.txt", "verify",
			[]string{"green PIX", "green verified", "red not verified", "yellow NODE", "yellow SYS"}},
		{"verify-traffic.txt", "verify", []string{"green PIX", "green ok", "red not verified", "red slow"}},
		{"status-used.txt", "status",
			[]string{"green up", "red unhealthy", "yellow DEGRADED", "yellow NOT REGISTERED"}},
		{"status-stale.txt", "status", []string{"red KUBELET DOWN", "red kubelet down", "yellow STALE"}},
		{"../../tandem-lab/testdata/play-qualify.txt", "qualify",
			[]string{"green passed", "yellow incomplete"}},
		{"status-free.txt", "status", []string{"green up"}},
	} {
		text, err := os.ReadFile(filepath.Join("../testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		s := Screen{Out: NewPrintableWriter(&out), Colour: true}
		if err := s.Show(text, commandVerdicts[c.command]); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, colouredWords(out.String())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.file, diff)
		}
		if plain := colours.ReplaceAllString(out.String(), "$2"); plain != string(text) {
			t.Errorf("%s: the text changes to\n%s", c.file, plain)
		}
	}
}

// TestNamesAreNoVerdicts: names of pods, resources and netdevs that are words of a verdict have no colour.
func TestNamesAreNoVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command string
		text    string
		want    []string
	}{
		{"status", "0000:08:00.0  0     0/1  0/4  unhealthy/failed/ok a/degraded/unhealthy\n", nil},
		{"status", "SWITCH  NUMA  RESOURCE  DEVICE  STATE      OWNER\n" +
			"s       0     r         d       unhealthy  unhealthy/a/b\n" +
			"s       0     r         d       allocated, unhealthy  a/unhealthy/b\n", []string{"red unhealthy"}},
		{"status", "HEALTH 1 device of a.b/failed degraded: failed: x\n", []string{"yellow HEALTH"}},
		{"status", "HEALTH 2 devices of a.b/c failed: down: x\n", []string{"red failed", "yellow HEALTH"}},
		{"status", "NODE  MODE  FREE GPUS  FREE VFS  PAIRS LEFT  DEGRADED  VERSION  NOTES\n" +
			"a     dra   0/2        0/2       0           1         ?        " +
			"team/a/b degraded: kubectl tandem explain team/a\n" +
			"b     ?     ?          ?         ?           ?         ?        " +
			"NO ANSWER: kube-system/c: its container waits\n",
			[]string{"red NO ANSWER", "yellow degraded"}},
		{"explain", "2026-01-02T15:04:05Z  refused/job/main  a.b/PIX  1        taken by nobody\n", nil},
		{"explain", "1. 2026-01-02T15:04:05Z a.b/SYS of team/refused/main\n", nil},
		{"explain", "   refused   no pair\n   result    1 pair: 1 SYS\n",
			[]string{"red refused", "yellow SYS"}},
		{"explain", "   0000:11:00.0  0000:0c:00.1  NODE\n", []string{"yellow NODE"}},
		{"plan", "1 pair: 1 PIX; resource a.b/NODE\n", []string{"green PIX"}},
		{"verify", "0000:11:00.0  0000:0c:00.1  PIX  SYS  ok\n", []string{"green PIX"}},
		{"verify", "not verified: GPU a and VF b are SYS apart, farther than PXB\n",
			[]string{"red not verified"}},
		{"verify", "0     a  b  GPU     78.90   41 %  slow: the link: x1\n", []string{"red slow"}},
	} {
		var out bytes.Buffer
		s := Screen{Out: NewPrintableWriter(&out), Colour: true}
		if err := s.Show([]byte(c.text), commandVerdicts[c.command]); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, colouredWords(out.String())); diff != "" {
			t.Errorf("%s(-want +got):\n%s", c.text, diff)
		}
	}
}
