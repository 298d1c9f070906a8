// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// FuzzParse: Parse never panics, and a parsed machine survives WriteTo and Parse.
func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Add(linked)
	f.Add(header + "\n[a]\nx =\n\t1\n\t2\nend 2 entries\n")
	f.Fuzz(func(t *testing.T, text string) {
		first, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		written := write(t, first)
		if again := write(t, parse(t, written)); again != written {
			t.Errorf("written:\n%s\nread and written again:\n%s", written, again)
		}
		walk(t, first.FS())
	})
}

// FuzzBuild: any content under any name survives being written and parsed.
func FuzzBuild(f *testing.F) {
	f.Add("a comment", "a/b", "1\n", "a/c", "../d")
	f.Add("", "end", "x\n\ny\n", "# x", "..")
	f.Add("two\nlines", "a/[b]", "\x00\xff", "a/b c", "x y")
	f.Fuzz(func(t *testing.T, comment, file, content, link, target string) {
		b := NewBuilder()
		b.Comment(comment)
		b.File(file, content)
		b.Link(link, target)
		m, err := b.Machine()
		if err != nil {
			return
		}
		again := parse(t, write(t, m))
		got, err := fs.ReadFile(again.FS(), file)
		if err != nil || string(got) != content {
			t.Errorf("%q holds %q, %v; want %q", file, got, err, content)
		}
		if got, err := fs.ReadLink(again.FS(), link); err != nil || got != target {
			t.Errorf("%q leads to %q, %v; want %q", link, got, err, target)
		}
		if got := strings.Join(again.Comments(), "\n"); got != comment {
			t.Errorf("comments %q, want %q", got, comment)
		}
	})
}

// walk reads all reachable entries.
func walk(t *testing.T, sys fs.FS) {
	t.Helper()
	err := fs.WalkDir(sys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch entry.Type() {
		case fs.ModeDir:
		case fs.ModeSymlink:
			_, err = fs.ReadLink(sys, name)
			_, _ = fs.Stat(sys, name) // may dangle
		default:
			_, err = fs.ReadFile(sys, name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// many returns a machine of 20,000 files.
func many(tb testing.TB) *Machine {
	tb.Helper()
	b := NewBuilder()
	for i := range 20000 {
		b.File(fmt.Sprintf("devices/pci0000:%02x/0000:%02x:00.0/file%d", i/1000, i/20%50, i%20), "0x060400\n")
	}
	m, err := b.Machine()
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func BenchmarkParse(b *testing.B) {
	var text bytes.Buffer
	if _, err := many(b).WriteTo(&text); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if _, err := Parse(bytes.NewReader(text.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFS(b *testing.B) {
	sys := many(b).FS()
	for b.Loop() {
		if _, err := fs.ReadFile(sys, "devices/pci0000:0a/0000:21:00.0/file7"); err != nil {
			b.Fatal(err)
		}
	}
}
