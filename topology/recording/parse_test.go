// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
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

// spent returns the user CPU time of the calling thread.
func spent(t *testing.T) time.Duration {
	t.Helper()
	const thread = 1 // RUSAGE_THREAD, getrusage(2)
	var usage syscall.Rusage
	if err := syscall.Getrusage(thread, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano())
}

// endless is an endless file such as /dev/zero.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	clear(p)
	return len(p), nil
}

// TestLimits: Parse returns an error with the limit for files larger than any machine.
func TestLimits(t *testing.T) {
	t.Parallel()
	file := func(lines ...string) io.Reader {
		return strings.NewReader(header + "\n" + strings.Join(lines, "\n") + "\nend 1 entries\n")
	}
	zero := &endless{}
	for name, c := range map[string]struct {
		from io.Reader
		want string
	}{
		"no end":    {zero, "read machine file: larger than 32 MiB"},
		"deep":      {file("[a" + strings.Repeat("/a", 64) + "]"), "line 2: the path \"a/a/"},
		"very deep": {file("[a" + strings.Repeat("/a", 10_000_000) + "]"), "is longer than 4096 bytes"},
		"long":      {file("[" + strings.Repeat("a", 5000) + "]"), "is longer than 4096 bytes"},
		"long file": {file("[a]", strings.Repeat("a", 5000)+" = 1"), "line 3: the path \"a/aaa"},
		"long link": {file("[a]", "b -> ../"+strings.Repeat("c/", 5000)+"c"), "is longer than 4096 bytes"},
		"comments":  {file(strings.Repeat("#\n", 10_001)), "the file has more than 10000 lines of comments"},
		"a line":    {file(strings.Repeat("=", 1<<20)), "want a directory in brackets first, not"},
		"a value":   {file("[a]", "b = "+strings.Repeat("x", 1<<20)+" "), "must be quoted"},
	} {
		_, err := Parse(c.from)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 300 {
			t.Errorf("%s: %.400v, want %q", name, err, c.want)
		}
	}
	if zero.read > 2*mostBytes {
		t.Errorf("%d bytes were read of a file without an end", zero.read)
	}
	parse(t, header+"\n[a"+strings.Repeat("/a", 63)+"]\nend 1 entries\n")
}

// TestManyEntries: the time of Parse depends only on the size of the file, not on the order of entries, and
// the number of entries is limited.
func TestManyEntries(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	fmt.Fprintln(&text, header+"\n[x]")
	const most = mostNodes - 1
	for i := range most {
		fmt.Fprintf(&text, "f%08d = 1\n", most-i)
	}
	fmt.Fprintf(&text, "end %d entries\n", most+1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := spent(t)
	if m := parse(t, text.String()); m.Len() != most+1 {
		t.Errorf("%d entries", m.Len())
	}
	if took := spent(t) - begin; took > 5*time.Second { // it takes half a second
		t.Errorf("%d entries took %s", most, took)
	}
	more := strings.Replace(text.String(), "[x]\n", "[x]\none = more\n", 1)
	if _, err := Parse(strings.NewReader(more)); err == nil ||
		!strings.Contains(err.Error(), "a machine has 250000 files, links and directories at most") {
		t.Errorf("one more: %v", err)
	}
}

// TestBuildOfLarge: the limit includes the entries of the machine that a Builder starts with.
func TestBuildOfLarge(t *testing.T) {
	t.Parallel()
	b := NewBuilder()
	for i := range mostNodes - 1 {
		b.File(fmt.Sprintf("x/f%08d", i), "1\n")
	}
	m, err := b.Machine()
	if err != nil {
		t.Fatal(err)
	}
	more := m.Build()
	more.File("y", "1\n")
	if _, err := more.Machine(); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("one more: %v", err)
	}
}
