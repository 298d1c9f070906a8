// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNewScreen: a terminal has a width, and colours unless the environment forbids them.
func TestNewScreen(t *testing.T) {
	t.Parallel()
	out := NewPrintableWriter(newTerminal(t, 77))
	if s := newScreen(out, auto, func(string) string { return "" }); s.width != 77 || !s.colour {
		t.Errorf("width %d, colour %t", s.width, s.colour)
	}
	if s := newScreen(out, auto, func(string) string { return "dumb" }); s.width != 77 || s.colour {
		t.Errorf("NO_COLOR: width %d, colour %t", s.width, s.colour)
	}
}

// newTerminal returns a pseudoterminal with a width.
func newTerminal(t *testing.T, width uint16) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudoterminal here:", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width}); err != nil {
		t.Fatal(err)
	}
	return slave
}
