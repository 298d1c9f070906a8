// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/topology"
)

// TestFacts: files in words are read as the bytes of sysfs, other texts as they are.
func TestFacts(t *testing.T) {
	t.Parallel()
	config := func(c topology.Capabilities) string { return string(c.Bytes()) }
	vpd := func(v topology.VPD) string { return string(v.Bytes()) }
	long := "V3=" + strings.Repeat("x", 300)
	for _, c := range []struct{ name, text, want string }{
		{configFile, "none\n", config(topology.Capabilities{})},
		{configFile, "ATS\n", config(topology.Capabilities{ATS: true})},
		{configFile, "ACS=0x001d\n", config(topology.Capabilities{ACS: true, Control: 0x1d})},
		{configFile, "ACS=0x0000 ATS\n", config(topology.Capabilities{ACS: true, ATS: true})},
		{configFile, "ACS=0x1d\n", "ACS=0x1d\n"},
		{configFile, "ACS=0x001d\nATS\n", "ACS=0x001d\nATS\n"},
		{configFile, "\x86\x80", "\x86\x80"},
		{configFile, "", ""},
		{vpdFile, "V3=1 SN=2\n", vpd(topology.VPD{V3: "1", SN: "2"})},
		{vpdFile, "SN=2\n", vpd(topology.VPD{SN: "2"})},
		{vpdFile, "SN=2 NVSwitch\n", vpd(topology.VPD{SN: "2", ManagesNVSwitches: true})},
		{vpdFile, "SN=2 V3=1\n", "SN=2 V3=1\n"},
		{vpdFile, long + "\n", long + "\n"},
		{vpdFile, "\n", "\n"},
		{vpdFile, "", ""},
		{"other", "none\n", "none\n"},
	} {
		b := NewBuilder()
		b.File("a/"+c.name, c.text)
		m, err := b.Machine()
		if err != nil {
			t.Fatal(err)
		}
		got, err := fs.ReadFile(m.FS(), "a/"+c.name)
		if string(got) != c.want || err != nil {
			t.Errorf("%s %q is read as %q, %v", c.name, c.text, got, err)
		}
		if err := fstest.TestFS(m.FS(), "a/"+c.name); err != nil {
			t.Error(err)
		}
		if again := parse(t, write(t, m)); write(t, again) != write(t, m) {
			t.Errorf("%s %q is written as %s", c.name, c.text, write(t, again))
		}
	}
}

// function has the files of a PCI function that Capture has to keep or to omit.
type function struct {
	address, class, vendor, pf string
	config, vpd                []byte
}

func sysfsOf(functions ...function) fstest.MapFS {
	sys := fstest.MapFS{}
	for _, f := range functions {
		dir := "devices/pci0000:80/" + f.address
		sys[pciDevices+"/"+f.address] = &fstest.MapFile{Data: []byte("../../../" + dir), Mode: fs.ModeSymlink}
		for name, content := range map[string][]byte{
			"class": []byte(f.class + "\n"), "vendor": []byte(f.vendor + "\n"), configFile: f.config, vpdFile: f.vpd,
		} {
			if content != nil {
				sys[dir+"/"+name] = &fstest.MapFile{Data: content, Mode: 0o400}
			}
		}
		if f.pf != "" {
			sys[dir+"/physfn"] = &fstest.MapFile{Data: []byte("../" + f.pf), Mode: fs.ModeSymlink}
		}
	}
	return sys
}

// facts returns the lines with facts of a machine, by function.
func factsOf(t *testing.T, m *Machine) map[string]string {
	t.Helper()
	facts, function := map[string]string{}, ""
	for line := range strings.Lines(write(t, m)) {
		switch name, _, _ := strings.Cut(line, " "); {
		case line[0] == '[':
			function = line[strings.LastIndex(line, "/")+1 : len(line)-2]
		case name == configFile, name == vpdFile:
			facts[function] += strings.TrimSpace(line) + "; "
		}
	}
	return facts
}

func TestCaptureFacts(t *testing.T) {
	t.Parallel()
	config := func(control uint16, ats bool) []byte {
		return topology.Capabilities{ACS: control != 0, Control: control, ATS: ats}.Bytes()
	}
	vpd := func(v3, sn string) []byte { return topology.VPD{V3: v3, SN: sn}.Bytes() }
	const port, nic, gpu, mellanox = "0x060400", "0x020000", "0x030200", "0x15b3"
	m, err := Capture(sysfsOf(
		function{"0000:80:01.0", port, "0x8086", "", config(0x1d, false), nil},
		function{"0000:81:00.0", nic, mellanox, "", config(0, true), vpd("uuid-a", "MT1")},
		function{"0000:81:00.1", nic, mellanox, "", config(0, false), vpd("uuid-a", "MT1")},
		function{"0000:81:00.2", nic, mellanox, "0000:81:00.0", config(0, true), nil},
		function{"0000:82:00.0", "0x020700", mellanox, "", config(0, false), vpd("uuid-a", "")},
		function{"0000:83:00.0", nic, mellanox, "", config(0, false), vpd("uuid-b", "MT1")},
		function{"0000:84:00.0", nic, "0x8086", "", config(0, false), vpd("uuid-c", "MT2")},
		function{"0000:85:00.0", gpu, "0x10de", "", config(0, true), vpd("", "1234")},
		function{"0000:86:00.0", nic, mellanox, "", config(0, false), []byte("\x90\xff\x00damaged")},
	))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"0000:80:01.0": "config = ACS=0x001d; ",
		"0000:81:00.0": "config = ATS; vpd = V3=1 SN=2; ",
		"0000:81:00.1": "config = none; vpd = V3=1 SN=2; ",
		"0000:82:00.0": "config = none; vpd = V3=1; ",
		"0000:83:00.0": "config = none; vpd = V3=3 SN=2; ",
		"0000:84:00.0": "config = none; ",
		"0000:86:00.0": "config = none; ",
	}
	if diff := cmp.Diff(want, factsOf(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if comments := m.Comments(); len(comments) > 0 {
		t.Errorf("comments %q", comments)
	}
}

// TestCaptureFactsAsUser: without CAP_SYS_ADMIN config is the header alone, and vpd cannot be opened.
func TestCaptureFactsAsUser(t *testing.T) {
	t.Parallel()
	sys := sysfsOf(
		function{"0000:81:00.0", "0x020000", "0x15b3", "", bytes.Repeat([]byte{0}, 64), []byte{}},
		function{"0000:82:00.0", "0x020000", "0x15b3", "", bytes.Repeat([]byte{0}, 64), []byte{}},
	)
	isVPD := func(name string) bool { return path.Base(name) == vpdFile }
	m, err := Capture(without(sys, "open", isVPD, syscall.EACCES))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"left out, could not be read: config (2); root can read it",
		"left out, could not be read: vpd (2); root can read it",
	}
	if diff := cmp.Diff(want, m.Comments()); diff != "" {
		t.Errorf("comments (-want +got):\n%s", diff)
	}
	if facts := factsOf(t, m); len(facts) > 0 {
		t.Errorf("facts %v", facts)
	}
}
