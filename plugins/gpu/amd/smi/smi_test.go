// SPDX-License-Identifier: Apache-2.0

package smi_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd/smi"
	"github.com/tandem-k8s/tandem/test/amdsmi"
	"github.com/tandem-k8s/tandem/test/machines"
)

// open loads a stand-in.
func open(t *testing.T, description string) (library *smi.Library, path string) {
	t.Helper()
	path = amdsmi.Build(t, description)
	library, err := smi.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return library, path
}

// machine is a recorded one, with its description.
func machine(t *testing.T, name string) (backend *amd.Backend, description string) {
	t.Helper()
	sys := machines.Sys(t, name, 0)
	description, err := amdsmi.Describe(sys)
	if err != nil {
		t.Fatal(err)
	}
	backend, err = amd.New(sys, amd.Single)
	if err != nil {
		t.Fatal(err)
	}
	return backend, description
}

// notes are those of a backend that consulted the library.
func notes(t *testing.T, backend *amd.Backend, library amd.Library) []string {
	t.Helper()
	backend.Consult("libamd_smi", library)
	inventory, err := backend.Discover()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := backend.Discover(); err != nil || len(again.Notes) > 0 {
		t.Errorf("said a second time: %q, %v", again.Notes, err)
	}
	return inventory.Notes
}

// TestAgreesWithSysfs: the library and sysfs say the same of every recorded machine.
func TestAgreesWithSysfs(t *testing.T) {
	library, path := open(t, "")
	for _, name := range []string{
		"oci-mi300x-derived", "amd-mi250-16gcd-8nic", "amd-mi300x-cpx-kfd", "amd-mi300x-smc-thor2",
	} {
		t.Run(name, func(t *testing.T) {
			backend, description := machine(t, name)
			before, err := backend.Links()
			if err != nil {
				t.Fatal(err)
			}
			amdsmi.Say(t, path, description)
			if got := notes(t, backend, library); len(got) > 0 {
				t.Errorf("notes %q", got)
			}
			after, err := backend.Links()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("links (-sysfs +with the library):\n%s", diff)
			}
		})
	}
}

func TestDisagrees(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string // in the description
		want     string
	}{
		"memory": {" 206141652992 0\n", " 68702699520 0\n",
			"0000:11:00.0 has 206141652992 bytes of VRAM, it says 68702699520"},
		"weight": {" 15\n", " 30\n", "0000:11:00.0 and 0000:2f:00.0 are 1 hops apart, it says weight 30"},
		"cards":  {"processor 0 4352", "processor 0 4608", "0000:12:00.0 is not driven by amdgpu, and known to it"},
		"fails": {"processor", "status amdsmi_init 10\nprocessor",
			"of no use: amdsmi_init: status 10; sysfs is read alone"},
		"empty": {"processor", "-", "libamd_smi knows no GPU"},
	} {
		t.Run(name, func(t *testing.T) {
			backend, description := machine(t, "oci-mi300x-derived")
			if !strings.Contains(description, c.from) {
				t.Fatalf("no %q in\n%s", c.from, description)
			}
			library, _ := open(t, strings.ReplaceAll(description, c.from, c.to))
			if got := strings.Join(notes(t, backend, library), "\n"); !strings.Contains(got, c.want) {
				t.Errorf("notes %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestMemoryErrors(t *testing.T) {
	const description = "processor 0 4352 0 COUNT\nprocessor 1 12032 0 7\n"
	say := func(count string) string { return strings.ReplaceAll(description, "COUNT", count) }
	library, path := open(t, say("3"))
	health := library.Errors(0)
	for _, step := range []struct {
		count   string
		healthy bool
	}{{"3", true}, {"3", true}, {"4", false}, {"4", true}, {"9", false}, {"0", true}} {
		amdsmi.Say(t, path, say(step.count))
		got, err := health(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]bool{"0000:11:00.0": step.healthy, "0000:2f:00.0": true}, got); diff != "" {
			t.Errorf("%s errors: %s", step.count, diff)
		}
	}
	amdsmi.Say(t, path, say("0")+"status amdsmi_get_gpu_total_ecc_count 2\n")
	if got, err := health(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("without ECC: %v, %v", got, err)
	}
}

// TestMemoryErrorsLast: an error lasts whatever queries follow, also without an answer, until the driver is
// loaded again.
func TestMemoryErrorsLast(t *testing.T) {
	const description = "processor 0 4352 0 COUNT\n"
	say := func(count string) string { return strings.ReplaceAll(description, "COUNT", count) }
	library, path := open(t, say("3"))
	health := library.Errors(time.Hour)
	for _, step := range []struct {
		says    string
		healthy bool
	}{
		{say("3"), true}, {say("4"), false}, {say("4"), false}, {"status amdsmi_get_socket_handles 2\n", false},
		{say("4"), false}, {say("0"), true},
	} {
		amdsmi.Say(t, path, step.says)
		if got, err := health(t.Context()); err != nil || got["0000:11:00.0"] != step.healthy {
			t.Errorf("%q: %v, %v; want healthy %t", step.says, got, err, step.healthy)
		}
	}
}

// TestHangs: who asks is not held up, now or later.
func TestHangs(t *testing.T) {
	library, _ := open(t, "hang amdsmi_get_socket_handles\n")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := library.Facts(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if _, err := library.Facts(t.Context()); err == nil || !strings.Contains(err.Error(), "has not answered") {
		t.Errorf("error %v", err)
	}
}

func TestNoLibrary(t *testing.T) {
	if _, err := smi.Open("libamd_smi-that-is-not-there.so"); err == nil ||
		!strings.Contains(err.Error(), "load libamd_smi-that-is-not-there.so") {
		t.Errorf("error %v", err)
	}
	if _, err := smi.Open("libc.so.6"); err == nil || !strings.Contains(err.Error(), "it has no amdsmi_") {
		t.Errorf("error %v", err)
	}
}
