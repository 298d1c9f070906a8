// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// file is an open file of sysfs. Each read at its start gives the present content; after the removal of the
// device it fails (ENODEV). An open file does not keep the device.
type file struct {
	name   string
	reader io.ReadSeeker // nil if the file does not exist or cannot be read
	page   [1024]byte    // the content; the longest files, of AER, have less than half
	io.Closer
}

// open opens a file.
func open(sys fs.FS, name string) *file {
	f := &file{name: name}
	opened, err := sys.Open(name)
	if err != nil {
		return f
	}
	f.Closer = opened
	f.reader, _ = opened.(io.ReadSeeker)
	return f
}

func (f *file) close() {
	if f.Closer != nil {
		_ = f.Close()
	}
}

// text returns the content. It reads once: a second read to see the end
// would make the kernel ask the device again.
func (f *file) text() (string, bool) {
	if f.reader == nil {
		return "", false
	}
	if _, err := f.reader.Seek(0, io.SeekStart); err != nil {
		return "", false
	}
	n, err := f.reader.Read(f.page[:])
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false
	}
	return strings.TrimSpace(string(f.page[:n])), true
}

// number returns the last number of the content: the only one, or the total "TOTAL_ERR_COR 3" in the last
// line.
func (f *file) number() (uint64, bool) {
	text, ok := f.text()
	if !ok {
		return 0, false
	}
	value, err := strconv.ParseUint(text[strings.LastIndexAny(text, " \n")+1:], 0, 64)
	return value, err == nil
}

// word returns the word of a numbered value: "ACTIVE" of "4: ACTIVE".
func (f *file) word() (string, bool) {
	text, ok := f.text()
	_, word, _ := strings.Cut(text, ": ")
	return word, ok
}

func (f *file) speed() float64 {
	text, _ := f.text()
	return topology.ParseLinkSpeed(text)
}

func (f *file) width() int {
	text, _ := f.text()
	return topology.ParseLinkWidth(text)
}
