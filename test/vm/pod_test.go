package main

import (
	"fmt"
	"strings"
	"testing"
)

// at is where a device of this machine is: below a switch of a socket, at a depth of its own.
func at(socket, port, device string) string {
	return "/sys/devices/pci0000:" + socket + "/0000:" + socket + ":" + port + "/0000:" + socket + "/0000:" + device
}

func TestPairs(t *testing.T) {
	for _, c := range []struct {
		name      string
		gpus, vfs []string
		want      int
	}{
		{"one switch", []string{at("20", "00.0", "28:00.0")}, []string{at("20", "00.0", "25:10.0")}, 1},
		{"two root ports of a socket", []string{at("20", "00.0", "28:00.0")}, []string{at("20", "01.0", "2d:10.0")}, 0},
		{"two sockets", []string{at("20", "00.0", "28:00.0")}, []string{at("80", "00.0", "85:10.0")}, 0},
		{"two VFs of one NIC are one pair", []string{at("20", "00.0", "28:00.0"), at("20", "01.0", "30:00.0")},
			[]string{at("20", "00.0", "25:10.0"), at("20", "00.0", "25:10.2")}, 1},
		{"in another order", []string{at("20", "00.0", "28:00.0"), at("20", "01.0", "30:00.0")},
			[]string{at("20", "01.0", "2d:10.0"), at("20", "00.0", "25:10.0")}, 2},
		{"no VF", []string{at("20", "00.0", "28:00.0")}, nil, 0},
	} {
		if got := (&view{gpus: c.gpus, vfs: c.vfs}).pairs(); got != c.want {
			t.Errorf("%s: %d pairs, want %d", c.name, got, c.want)
		}
	}
}

func TestReadLook(t *testing.T) {
	var v view
	for line := range strings.Lines(`gpu renderD128 /sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:28:00.0
vf 0000:25:10.0 /sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:25:10.0
GPU           VF            DISTANCE

verified: 1 GPUs, 1 VFs, pairs in the order of the lists, pairs.json agrees
verify 0
`) {
		if last := v.read(strings.TrimSuffix(line, "\n")); last != strings.HasPrefix(line, "verify ") {
			t.Errorf("%q: last is %v", line, last)
		}
	}
	want := view{gpus: []string{"/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:28:00.0"},
		vfs:      []string{"/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/0000:25:10.0"},
		verified: true, verdict: "verified: 1 GPUs, 1 VFs, pairs in the order of the lists, pairs.json agrees"}
	if fmt.Sprint(v) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", v, want)
	}
}

// The options choose among the machines.
func TestBoots(t *testing.T) {
	for _, c := range []struct {
		o    options
		want string
	}{
		{options{}, "MI300X, 4 VFs per PF, 1 VFs per PF; H100, 2 VFs per PF"},
		{options{machine: "h100"}, "H100, 2 VFs per PF"},
		{options{machine: "mi300x", vfs: 1}, "MI300X, 1 VFs per PF"},
		{options{machine: "h100", vfs: 1}, ""},
		{options{short: true}, "MI300X, 4 VFs per PF"},
	} {
		var titles []string
		for _, m := range boots(c.o) {
			title := []string{m.name}
			for _, p := range m.phases {
				title = append(title, fmt.Sprintf("%d VFs per PF", p.vfsPerPF))
				n := node{machine: m, phase: p}
				if m.gpus() != 8 || n.vfs() != 8*p.vfsPerPF {
					t.Errorf("%s has %d GPUs and %d VFs", n.title(), m.gpus(), n.vfs())
				}
			}
			titles = append(titles, strings.Join(title, ", "))
		}
		if got := strings.Join(titles, "; "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.o, got, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	near := view{gpus: []string{at("20", "00.0", "28:00.0")}, vfs: []string{at("20", "00.0", "25:10.0")}, verified: true}
	far := view{gpus: near.gpus, vfs: []string{at("20", "01.0", "2d:10.0")}, verdict: "too far"}
	unverified := near
	unverified.verified = false
	for _, c := range []struct {
		name   string
		tandem bool
		o      outcome
		wanted scenario
		fault  bool
	}{
		{"near", true, outcome{containers: []view{near}}, pair(1), false},
		{"far", true, outcome{containers: []view{far}}, pair(1), true},
		{"far without Tandem", false, outcome{containers: []view{far}}, pair(1), false},
		{"far where that is a limit", true, outcome{containers: []view{far}}, scenario{asks: pair(1).asks, limit: "a limit"}, false},
		{"near and tandem verify disagrees", true, outcome{containers: []view{unverified}}, pair(1), true},
		{"too few devices", false, outcome{containers: []view{near}}, pair(2), true},
		{"refused", true, outcome{reason: topologyAffinity}, pair(1), true},
		{"refused as expected", true, outcome{reason: topologyAffinity}, refusedPair(8), false},
		{"refused for another reason", true, outcome{reason: "UnexpectedAdmissionError"}, refusedPair(8), true},
		{"admitted against the rule", true, outcome{containers: []view{near}}, refusedPair(1), true},
	} {
		if problem := judge(setup{tandem: c.tandem}, c.wanted, &c.o); (problem != "") != c.fault {
			t.Errorf("%s: %q", c.name, problem)
		}
	}
	for file, fault := range map[string]bool{"absent": true, "agrees": false} {
		v := near
		v.verdict = "verified: 1 GPUs, 1 VFs, pairs in the order of the lists, pairs.json " + file
		if problem := judge(setup{tandem: true, pairsFile: true}, pair(1), &outcome{containers: []view{v}}); (problem != "") != fault {
			t.Errorf("pairs.json is wanted, and %s: %q", file, problem)
		}
	}
}
