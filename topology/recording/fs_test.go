// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/tandem-k8s/tandem/topology"
)

const linked = header + `
[a/b]
across -> ../../c/there
file = text
gone -> nowhere
self -> self
up -> ..
[c]
file = other
there -> ../a/b
end 9 entries
`

func TestFS(t *testing.T) {
	t.Parallel()
	b := parse(t, linked).Build()
	m, err := b.Machine()
	if err != nil {
		t.Fatal(err)
	}
	sys := m.FS()
	for _, test := range []struct {
		name, want string
		err        error
	}{
		{name: "a/b/file", want: "text\n"},
		{name: "c/there/file", want: "text\n"},
		{name: "a/b/across/across/file", want: "text\n"},
		{name: "a/b/across/up/b/file", want: "text\n"},
		{name: "a/b/gone", err: fs.ErrNotExist},
		{name: "a/b/file/x", err: syscall.ENOTDIR},
		{name: "a/b/self", err: syscall.ELOOP},
		{name: "a/b/up", err: syscall.EISDIR},
		{name: "/a/b/file", err: fs.ErrInvalid},
		{name: "a/../c/file", err: fs.ErrInvalid},
	} {
		got, err := fs.ReadFile(sys, test.name)
		if string(got) != test.want || !errors.Is(err, test.err) {
			t.Errorf("ReadFile(%s) = %q, %v; want %q, %v", test.name, got, err, test.want, test.err)
		}
	}
	if target, err := fs.ReadLink(sys, "c/there/across"); err != nil || target != "../../c/there" {
		t.Errorf("ReadLink = %q, %v", target, err)
	}
	if _, err := fs.ReadLink(sys, "c/file"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("ReadLink of a file: %v", err)
	}
	if _, err := fs.ReadDir(sys, "c/file"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("ReadDir of a file: %v", err)
	}
}

func TestFSIsComplete(t *testing.T) {
	t.Parallel()
	const tree = header +
		"\n[a/b]\nacross -> ../../c\nfile = text\n[c/empty]\n[d]\nmany =\n\tx\n\ty\nend 6 entries\n"
	if err := fstest.TestFS(parse(t, tree).FS(), "a/b/file", "a/b/across", "c/empty", "d/many"); err != nil {
		t.Error(err)
	}
}

func address(s string) topology.Address {
	a, err := topology.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

func TestAddressAfter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pf   string
		plus int
		want string
	}{
		{"0000:0c:00.0", 255, "0000:0c:1f.7"},
		{"0000:0c:00.0", 256, "0000:0d:00.0"},
		{"10000:fe:1f.0", 8, "10000:ff:00.0"},
	} {
		if got, err := addressAfter(address(test.pf), test.plus); err != nil || got != address(test.want) {
			t.Errorf("after(%s, %d) = %v, %v; want %s", test.pf, test.plus, got, err, test.want)
		}
	}
	if _, err := addressAfter(address("0000:ff:00.0"), 256); err == nil {
		t.Error("after bus ff: want an error")
	}
}
