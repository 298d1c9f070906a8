// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-k8s/tandem/topology"
)

// FS returns the machine as a read-only file system that follows links and is safe for concurrent use. Facts
// in the notation of this package (files config and vpd) are read in the format of sysfs.
func (m *Machine) FS() fs.FS { return &tree{root: m.root} }

// maxLinks is the maximum number of links that a lookup follows, as in the kernel (MAXSYMLINKS in
// include/linux/namei.h).
const maxLinks = 40

type tree struct{ root *node }

var _ interface {
	fs.ReadLinkFS
	fs.ReadDirFS
} = (*tree)(nil)

// Open implements fs.FS.
func (t *tree) Open(name string) (fs.File, error) {
	n, err := t.findNode("open", name, true)
	if err != nil {
		return nil, err
	}
	if n.isDir() {
		return &openDir{info: info{n}, entries: n.listEntries()}, nil
	}
	return &openFile{info: info{n}, Reader: strings.NewReader(n.contentForReaders())}, nil
}

// ReadDir implements fs.ReadDirFS.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.findNode("readdir", name, true)
	if err != nil {
		return nil, err
	}
	if !n.isDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: syscall.ENOTDIR}
	}
	return n.listEntries(), nil
}

// Lstat implements fs.ReadLinkFS.
func (t *tree) Lstat(name string) (fs.FileInfo, error) {
	n, err := t.findNode("lstat", name, false)
	if err != nil {
		return nil, err
	}
	return info{n}, nil
}

// ReadLink implements fs.ReadLinkFS.
func (t *tree) ReadLink(name string) (string, error) {
	n, err := t.findNode("readlink", name, false)
	if err != nil {
		return "", err
	}
	if n.kind != fs.ModeSymlink {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: syscall.EINVAL}
	}
	return n.text, nil
}

// findNode returns the node of a name. It follows links in the path; at the end of the path, only with
// follow.
func (t *tree) findNode(op, name string, follow bool) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n, err := t.walkTo(name, follow)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return n, nil
}

func (t *tree) walkTo(name string, follow bool) (*node, error) {
	way := []*node{t.root}
	links := 0
	for rest := name; rest != ""; {
		var element string
		element, rest, _ = strings.Cut(rest, "/")
		here := way[len(way)-1]
		switch {
		case !here.isDir():
			return nil, syscall.ENOTDIR
		case element == ".":
			continue
		case element == ".." && len(way) == 1:
			return nil, fs.ErrNotExist
		case element == "..":
			way = way[:len(way)-1]
			continue
		}
		next := here.findChild(element)
		if next == nil {
			return nil, fs.ErrNotExist
		}
		if next.kind != fs.ModeSymlink || rest == "" && !follow {
			way = append(way, next)
			continue
		}
		links++
		if links > maxLinks {
			return nil, syscall.ELOOP
		}
		if rest != "" {
			rest = "/" + rest
		}
		rest = next.text + rest
	}
	return way[len(way)-1], nil
}

func (n *node) listEntries() []fs.DirEntry {
	entries := make([]fs.DirEntry, len(n.children))
	for i, child := range n.children {
		entries[i] = info{child}
	}
	return entries
}

// info implements fs.FileInfo and fs.DirEntry. Files and directories are read-only.
type info struct{ *node }

func (i info) Name() string {
	if i.name == "" {
		return "."
	}
	return i.name
}

func (i info) Size() int64                { return int64(len(i.contentForReaders())) }
func (i info) ModTime() time.Time         { return time.Time{} }
func (i info) IsDir() bool                { return i.isDir() }
func (i info) Sys() any                   { return nil }
func (i info) Type() fs.FileMode          { return i.kind }
func (i info) Info() (fs.FileInfo, error) { return i, nil }

func (i info) Mode() fs.FileMode {
	switch i.kind {
	case fs.ModeDir:
		return fs.ModeDir | 0o555
	case fs.ModeSymlink:
		return fs.ModeSymlink | 0o777
	default:
		return 0o444
	}
}

// openFile implements fs.File for a file.
type openFile struct {
	info
	*strings.Reader
}

func (f *openFile) Size() int64                { return f.info.Size() }
func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

// openDir implements fs.ReadDirFile.
type openDir struct {
	info
	entries []fs.DirEntry
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.Name(), Err: syscall.EISDIR}
}

// ReadDir implements fs.ReadDirFile.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.entries)
	} else if len(d.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.entries))
	entries := slices.Clone(d.entries[:n])
	d.entries = d.entries[n:]
	return entries, nil
}

// A machine file has the facts of a function's files config and vpd in words instead of the files' bytes:
//
//	config = ACS=0x001d ATS
//	vpd = V3=1 SN=2 NVSwitch
const (
	configFile = "config"
	vpdFile    = "vpd"
	neither    = "none"     // of ACS and ATS
	nvSwitch   = "NVSwitch" // the function manages NVSwitches
)

func configText(c topology.Capabilities) string {
	var words []string
	if c.ACS {
		words = append(words, fmt.Sprintf("ACS=%#04x", c.Control))
	}
	if c.ATS {
		words = append(words, "ATS")
	}
	return cmp.Or(strings.Join(words, " "), neither) + "\n"
}

func vpdText(v topology.VPD) string {
	var words []string
	if v.V3 != "" {
		words = append(words, "V3="+v.V3)
	}
	if v.SN != "" {
		words = append(words, "SN="+v.SN)
	}
	if v.ManagesNVSwitches {
		words = append(words, nvSwitch)
	}
	return strings.Join(words, " ") + "\n"
}

func parseConfig(text string) (c topology.Capabilities) {
	for word := range strings.FieldsSeq(text) {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "ACS":
			control, _ := strconv.ParseUint(value, 0, 16) // compared with the text below
			c.ACS, c.Control = true, uint16(control)
		case "ATS":
			c.ATS = true
		}
	}
	return c
}

func parseVPD(text string) (v topology.VPD) {
	for word := range strings.FieldsSeq(text) {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "V3":
			v.V3 = value
		case "SN":
			v.SN = value
		case nvSwitch:
			v.ManagesNVSwitches = true
		}
	}
	return v
}

// contentForReaders returns the content of a file for readers. Facts in exactly the words of this package
// become bytes as in sysfs; any other text stays.
func (n *node) contentForReaders() string {
	switch n.name {
	case configFile:
		if c := parseConfig(n.text); configText(c) == n.text {
			return string(c.Bytes())
		}
	case vpdFile:
		v := parseVPD(n.text)
		known := v != topology.VPD{} && max(len(v.V3), len(v.SN)) <= topology.LongestKeyword
		if known && vpdText(v) == n.text {
			return string(v.Bytes())
		}
	}
	return n.text
}

// recordFacts records the facts of a function's files config and vpd, which take root. Both are slow to read
// and only recorded where they can tell something: config of ports and PFs, vpd of NVIDIA's PFs and DMA
// functions.
func (c *capture) recordFacts(dir string) {
	text := func(file string) string {
		content, err := fs.ReadFile(c.sys, path.Join(dir, file))
		if err != nil {
			c.leaveOut(path.Join(dir, file), err) // "" is of no kind below
		}
		return strings.TrimSpace(string(content))
	}
	class := text("class")
	_, err := fs.ReadLink(c.sys, path.Join(dir, "physfn"))
	isPF := strings.HasPrefix(class, "0x02") && errors.Is(err, fs.ErrNotExist)
	if isPF || strings.HasPrefix(class, "0x0604") {
		c.recordFact(path.Join(dir, configFile), c.configWords)
	}
	if isPF && text("vendor") == "0x15b3" {
		c.recordFact(path.Join(dir, vpdFile), c.vpdWords)
	}
}

// recordFact records one file in words, nothing for "".
func (c *capture) recordFact(name string, words func(fs.File) (string, error)) {
	file, err := c.sys.Open(name)
	if err != nil {
		c.leaveOut(name, err)
		return
	}
	defer func() { _ = file.Close() }() // opened for reading
	text, err := words(file)
	if err == nil && text != "" {
		err = c.builder.addNode(name, &node{text: text})
	}
	c.leaveFailed(name, err)
}

func (c *capture) configWords(file fs.File) (string, error) {
	at, ok := file.(io.ReaderAt)
	if !ok {
		return "", errors.ErrUnsupported
	}
	facts, known := topology.ReadCapabilities(at)
	if !known {
		return "", fs.ErrPermission
	}
	return configText(facts), nil
}

func (c *capture) vpdWords(file fs.File) (string, error) {
	facts, err := topology.ReadVPD(file)
	if facts == (topology.VPD{}) {
		return "", err
	}
	facts.V3, facts.SN = c.scrub.scrubKeyword(facts.V3), c.scrub.scrubKeyword(facts.SN)
	return vpdText(facts), nil
}
