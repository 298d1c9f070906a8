// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// file is one file of an archive and of a package.
type file struct {
	name      string // in the archive; "" if the archive omits the file
	installed string // path in a package; "" if packages omit the file
	packager  string // "deb" or "rpm" if only one format has the file; "" for both
	program   bool
	link      string // target of a symbolic link in the same directory; "" for none
	content   []byte
}

// extras returns the files that are equal on all platforms.
func (r release) extras() ([]file, error) {
	tandem := filepath.Join(r.builds[0].dir, "tandem")
	var files []file
	for _, shell := range []struct{ name, file, installed string }{
		{"bash", "tandem.bash", "/usr/share/bash-completion/completions/tandem"},
		{"zsh", "_tandem", "/usr/share/zsh/site-functions/_tandem"},
		{"fish", "tandem.fish", "/usr/share/fish/vendor_completions.d/tandem.fish"},
	} {
		content, err := output(tandem, "completion", shell.name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "completions/" + shell.file, installed: shell.installed, content: content})
		if shell.name == "zsh" { // Debian uses a directory of its own
			files[len(files)-1].packager = "rpm"
			files = append(files, file{
				installed: "/usr/share/zsh/vendor-completions/_tandem", packager: "deb", content: content,
			})
		}
	}
	page, err := r.manual(tandem)
	if err != nil {
		return nil, err
	}
	files = append(files,
		file{name: "man/tandem.1", content: page},
		file{installed: "/usr/share/man/man1/tandem.1.gz", content: compressed(page)})
	for _, text := range []file{
		{name: "LICENSE", installed: "/usr/share/doc/tandem/copyright"},
		{name: "CHANGELOG.md", installed: "/usr/share/doc/tandem/CHANGELOG.md"},
	} {
		text.content, err = os.ReadFile(filepath.Join(r.root, text.name))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", text.name, err)
		}
		files = append(files, text)
	}
	return files, nil
}

// tried are the programs with which people try Tandem: only archives have them.
var tried = []string{"tandem-lab", "tandem-gpu", "tandem-rdma"}

// contents returns all files for one platform, the program first.
func (r release) contents(b build, extras []file) ([]file, error) {
	program, err := os.ReadFile(filepath.Join(b.dir, "tandem"))
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	own := file{name: "tandem", installed: "/usr/bin/tandem", program: true, content: program}
	// kubectl runs the plugin under the first name, and its shell completion under the second.
	// Archives omit the links: Krew unpacks only regular files.
	plugin := file{installed: "/usr/bin/kubectl-tandem", program: true, link: "tandem"}
	completer := file{installed: "/usr/bin/kubectl_complete-tandem", program: true, link: "tandem"}
	files := []file{own, plugin, completer}
	for _, name := range tried {
		if !b.isProgram(name) {
			continue
		}
		program, err = os.ReadFile(filepath.Join(b.dir, name))
		if err != nil {
			return nil, fmt.Errorf("read the program: %w", err)
		}
		files = append(files, file{name: name, program: true, content: program})
	}
	return append(files, extras...), nil
}

func (f file) mode() os.FileMode {
	if f.program {
		return 0o755
	}
	return 0o644
}

func output(program string, args ...string) ([]byte, error) {
	cmd := exec.Command(program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s %s: %w: %s", program, strings.Join(args, " "), err, stderr.String())
	}
	return out, nil
}

// compressed returns the gzip format of a text, without name and time.
func compressed(text []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	_, _ = w.Write(text)                                    // a bytes.Buffer returns no errors
	_ = w.Close()
	return out.Bytes()
}

var command = regexp.MustCompile(`(?m)^  ([a-z]+) {2,}\S`)

// manual returns the manual page of tandem, made from the help of the program and its commands.
func (r release) manual(tandem string) ([]byte, error) {
	help, err := output(tandem, "--help")
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, ".TH TANDEM 1 %q %q\n", r.made.Format("2006-01-02"), "Tandem "+r.version)
	page.WriteString(".SH NAME\ntandem \\- show, record and plan GPUs and RDMA VFs on the same PCIe switch\n")
	section(&page, "DESCRIPTION", help)
	_, list, _ := bytes.Cut(help, []byte("Available Commands:\n"))
	list, _, _ = bytes.Cut(list, []byte("\n\n"))
	for _, found := range command.FindAllSubmatch(list, -1) {
		name := string(found[1])
		text, err := output(tandem, name, "--help")
		if err != nil {
			return nil, err
		}
		section(&page, "tandem "+name, text)
	}
	return page.Bytes(), nil
}

var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`)

// section adds a text verbatim. A zero-width character before lines that look like roff requests escapes
// these.
func section(page *bytes.Buffer, title string, text []byte) {
	fmt.Fprintf(page, ".SH %q\n.nf\n", strings.ToUpper(title))
	for line := range strings.Lines(strings.TrimSpace(string(text)) + "\n") {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			page.WriteString(`\&`)
		}
		page.WriteString(roff.Replace(line))
	}
	page.WriteString(".fi\n")
}
