// SPDX-License-Identifier: Apache-2.0

package build

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// packed is a file of an archive: a copy of a local file, or text.
type packed struct {
	name string // without the leading slash
	from string
	text string
	mode int64
}

func (p packed) content() ([]byte, error) {
	if p.from == "" {
		return []byte(p.text), nil
	}
	return os.ReadFile(p.from)
}

// writeArchive writes files into an archive of a format.
func writeArchive(to string, files []packed, format func(io.Writer, []packed) error) error {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(format(out, files), out.Close())
}

func tarball(w io.Writer, files []packed) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		content, err := f.content()
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(content)), Mode: f.mode,
		}); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// cpio writes the format of an initial RAM disk (Documentation/driver-api/early-userspace/buffer-format.rst),
// with the folders of the files and a console for the first process.
func cpio(w io.Writer, files []packed) error {
	const directory, regular, character = 0o040000, 0o100000, 0o020000
	e := &cpioWriter{w: w}
	e.entry("dev", directory|0o755, 0, nil)
	e.entry("dev/console", character|0o600, 5<<8|1, nil)
	made := map[string]bool{"dev": true, ".": true}
	for _, f := range files {
		if dir := path.Dir(f.name); !made[dir] {
			made[dir] = true
			e.entry(dir, directory|0o755, 0, nil)
		}
		content, err := f.content()
		if err != nil {
			return err
		}
		e.entry(f.name, regular|f.mode, 0, content)
	}
	e.entry("TRAILER!!!", 0, 0, nil)
	return e.err
}

type cpioWriter struct {
	w      io.Writer
	number int // of the entry, its inode
	err    error
}

// entry writes a header of 13 numbers in hex, the name and the content, each filled up to four bytes.
func (e *cpioWriter) entry(name string, mode int64, device int, content []byte) {
	e.number++
	var out bytes.Buffer
	out.WriteString("070701")
	for _, field := range []int64{
		int64(e.number), mode, 0, 0, 1, 0, int64(len(content)), 0, 0, int64(device >> 8), int64(device & 0xff),
		int64(len(name) + 1), 0,
	} {
		fmt.Fprintf(&out, "%08x", field)
	}
	for _, part := range [][]byte{append([]byte(name), 0), content} {
		out.Write(part)
		for out.Len()%4 != 0 {
			out.WriteByte(0)
		}
	}
	if e.err == nil {
		_, e.err = e.w.Write(out.Bytes())
	}
}
