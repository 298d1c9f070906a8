// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// example has every form of entry.
const example = `# tandem machine v1
# a machine
#
#  with an indented comment
[.]
top = file
[a/b]
empty = ""
"end" = 3
many =
	first line
	second line
no-newline = "no newline"
plain = 0x060400
quoted = "tab\tand \"quotes\"\n"
spaces = " at both ends \n"
up -> ../c/d:1.0
"with space" -> ..
["a/b c/]"]
[c/d:1.0]
[e]
1 = 1
end 16 entries
`

func parse(t *testing.T, text string) *Machine {
	t.Helper()
	m, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func write(t *testing.T, m *Machine) string {
	t.Helper()
	var text bytes.Buffer
	n, err := m.WriteTo(&text)
	if err != nil || n != int64(text.Len()) {
		t.Fatalf("WriteTo returned %d, %v for %d bytes", n, err, text.Len())
	}
	return text.String()
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	m := parse(t, example)
	if diff := cmp.Diff(example, write(t, m)); diff != "" {
		t.Errorf("WriteTo(Parse) (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a machine", "", " with an indented comment"}, m.Comments()); diff != "" {
		t.Errorf("comments (-want +got):\n%s", diff)
	}
	if m.Len() != 16 {
		t.Errorf("Len() = %d, want 16", m.Len())
	}
}

// TestWrittenBack lists texts that WriteTo normalizes.
func TestWrittenBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ about, text, want string }{
		{"blank lines go", "\n[a]\n\nx = 1\n\nend 2 entries\n\n", "[a]\nx = 1\nend 2 entries\n"},
		{"entries are sorted", "[b]\ny = 1\nx = 2\n[a]\nend 4 entries\n",
			"[a]\n[b]\nx = 2\ny = 1\nend 4 entries\n"},
		{"needless quotes go", "[\"a\"]\n\"x\" = \"1\\n\"\nend 2 entries\n", "[a]\nx = 1\nend 2 entries\n"},
		{"a directory on the way goes", "[a]\n[a/b]\nend 2 entries\n", "[a/b]\nend 1 entries\n"},
		{"one indented line moves up", "[a]\nx =\n\t1\nend 2 entries\n", "[a]\nx = 1\nend 2 entries\n"},
		{"a newline at the end is added", "[a]\nend 1 entries", "[a]\nend 1 entries\n"},
		{"nothing", "end 0 entries\n", "end 0 entries\n"},
	} {
		t.Run(test.about, func(t *testing.T) {
			t.Parallel()
			got := write(t, parse(t, header+"\n"+test.text))
			if diff := cmp.Diff(header+"\n"+test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                     `line 1: not a machine file: want "# tandem machine v1"`,
		"\x7fELF\x02\x01":                      `line 1: not a machine file: want "# tandem machine v1"`,
		"# tandem machine v2\nend 0 entries\n": `line 1: unknown version "v2" of the machine file: want v1`,
	} {
		wantError(t, text, want)
	}
	for _, test := range []struct{ about, text, want string }{
		{"header only", "", `line 1: no line "end N entries" at the end: the file is truncated`},
		{"cut", "[a]\nx = 1\n", `line 3: no line "end N entries" at the end: the file is truncated`},
		{"cut in a value", "[a]\nx =\n", `line 3: no line "end N entries" at the end: the file is truncated`},
		{"cut in the last line", "[a]\nx = 1\nend 2 ent", `line 4: want "end N entries", not "end 2 ent"`},
		{"a line missing", "[a]\nend 2 entries\n",
			`line 3: 1 entries instead of 2: lines are missing or were added`},
		{"text after the end", "end 0 entries\n[a]\n", `line 3: unexpected "[a]" after the last line`},
		{"file twice", "[a]\nx = 1\nx = 2\nend 3 entries\n", `line 4: a/x is defined twice`},
		{"file and link", "[a]\nx = 1\nx -> y\nend 3 entries\n", `line 4: a/x is defined twice`},
		{"directory twice", "[a]\n[a]\nend 2 entries\n", `line 3: a is defined twice`},
		{"file and directory", "[a]\nx = 1\n[a/x]\nend 3 entries\n", `line 4: a/x: x is not a directory`},
		{"directory and file", "[a/x]\n[a]\nx = 1\nend 3 entries\n", `line 4: a/x is defined twice`},
		{"directory below a link", "[a]\nx -> y\n[a/x/z]\nend 3 entries\n",
			`line 4: a/x/z: x is not a directory`},
		{"absolute directory", "[/a]\nend 1 entries\n", `line 2: path "/a" does not lead down from the root`},
		{"directory above the root", "[a/../../b]\nend 1 entries\n",
			`line 2: path "a/../../b" does not lead down from the root`},
		{"entry above the directory", "[a]\n\"../x\" = 1\nend 2 entries\n",
			`line 3: name "../x" is not a single path element`},
		{"entry without a directory", "x = 1\nend 1 entries\n",
			`line 2: want a directory in brackets first, not "x = 1"`},
		{"absolute link", "[a]\nx -> /etc/shadow\nend 2 entries\n",
			`line 3: link a/x to "/etc/shadow": want a relative target that leads up first, then down`},
		{"link above the root", "[a]\nx -> ../../etc/shadow\nend 2 entries\n",
			`line 3: link a/x to "../../etc/shadow" leads above the root`},
		{"link down and up", "[a]\nx -> ../b/../../c\nend 2 entries\n",
			`line 3: link a/x to "../b/../../c": want a relative target that leads up first, then down`},
		{"link to itself", "[a]\nx -> .\nend 2 entries\n",
			`line 3: link a/x to ".": want a relative target that leads up first, then down`},
		{"no bracket", "[a\nend 1 entries\n", `line 2: want a directory in brackets, not "[a"`},
		{"no value", "[a]\nx =\nend 2 entries\n", `line 3: an empty file must be written as name = ""`},
		{"no sign", "[a]\nx 1\nend 2 entries\n", `line 3: want name = value or name -> target, not "x 1"`},
		{"no space", "[a]\nx =1\nend 2 entries\n", `line 3: want a space after the equals sign`},
		{"odd name", "[a]\nx*y = 1\nend 2 entries\n", `line 3: name "x*y" must be quoted`},
		{"carriage return", "[a]\nx = 1\r\nend 2 entries\n", `line 3: value "1\r" must be quoted`},
		{"space at the end", "[a]\nx =\n\t1\n\t2 \nend 2 entries\n",
			`line 5: line "2 ": the whole content of the file must be quoted`},
		{"open quotes", "[a]\nx = \"1\nend 2 entries\n", `line 3: unquote "1: invalid syntax`},
		{"open quotes of a name", "[a]\n\"x = 1\nend 2 entries\n", `line 3: unquote "x = 1: invalid syntax`},
		{"comment below", "[a]\n# x\nend 1 entries\n", `line 3: a comment below the head of the file`},
	} {
		t.Run(test.about, func(t *testing.T) {
			t.Parallel()
			wantError(t, header+"\n"+test.text, test.want)
		})
	}
}

// wantError expects an error of Parse.
func wantError(t *testing.T, text, want string) {
	t.Helper()
	_, err := Parse(strings.NewReader(text))
	if err == nil || err.Error() != "parse machine file: "+want {
		t.Errorf("%q: error %v, want %s", text, err, want)
	}
}

// TestCutAnywhere: Parse rejects a file truncated anywhere except before the last newline.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	for n := range len(example) - 1 {
		if _, err := Parse(strings.NewReader(example[:n])); err == nil {
			t.Errorf("the first %d bytes are accepted:\n%s", n, example[:n])
		}
	}
}

// TestPackageComment: the example in the package comment is a machine file.
func TestPackageComment(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("machine.go")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(source)) {
		if line, ok := strings.CutPrefix(line, "//\t"); ok {
			text.WriteString(line)
		}
	}
	m := parse(t, text.String())
	if diff := cmp.Diff(text.String(), write(t, m)); diff != "" {
		t.Errorf("it would be written otherwise (-doc +written):\n%s", diff)
	}
}

func TestBuilder(t *testing.T) {
	t.Parallel()
	b := parse(t, example).Build()
	b.Replace("e/1", "2\n")
	b.File("e/new", "")
	b.keepError(b.addDir("e"))
	m, err := b.Machine()
	if err != nil {
		t.Fatal(err)
	}
	b.File("e/later", "") // is not in m any more
	want := strings.NewReplacer("1 = 1\n", "1 = 2\nnew = \"\"\n", "end 16", "end 17").Replace(example)
	if diff := cmp.Diff(want, write(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBuilderErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		about, want string
		build       func(*Builder)
	}{
		{"file above the root",
			`path "../x" does not lead down from the root`, func(b *Builder) { b.File("../x", "") }},
		{"zero byte", `path "x\x00" does not lead down from the root`, func(b *Builder) { b.File("x\x00", "") }},
		{"the root as a file", "the root is a directory", func(b *Builder) { b.File(".", "") }},
		{"a file that is not there", "replace x: file does not exist", func(b *Builder) { b.Replace("x", "") }},
		{"the first error",
			"x is defined twice", func(b *Builder) { b.File("x", ""); b.Link("x", "y"); b.File("/", "") }},
		{"empty target",
			`link x to "": want a relative target that leads up first, then down`, func(b *Builder) {
				b.Link("x", "")
			}},
	} {
		t.Run(test.about, func(t *testing.T) {
			t.Parallel()
			b := NewBuilder()
			test.build(b)
			if _, err := b.Machine(); err == nil || err.Error() != test.want {
				t.Errorf("error %q, want %q", err, test.want)
			}
		})
	}
}
