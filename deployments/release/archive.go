// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sumsFile has the checksums of all artefacts, in the format of "sha256sum -c".
const sumsFile = "SHA256SUMS"

// archive writes the files into tandem_VERSION_linux_ARCH.tar.gz.
func (r release) archive(b build, files []file) error {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range files {
		if f.name == "" {
			continue
		}
		header := tar.Header{
			Name: f.name, Mode: int64(f.mode()), Size: int64(len(f.content)), ModTime: r.made, Format: tar.FormatUSTAR,
		}
		if f.link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(&header); err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(r.path(r.archiveName(b)), compressed(packed.Bytes()), 0o644)
}

func (r release) archiveName(b build) string {
	return fmt.Sprintf("tandem_%s_linux_%s.tar.gz", r.version, b.arch)
}

// checksums writes the checksums of all files in a folder to a file there, and returns them.
func checksums(dir string) (string, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return "", err
	}
	var sums strings.Builder
	for _, entry := range entries {
		if entry.Name() == sumsFile {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return "", fmt.Errorf("sum %s: %w", entry.Name(), err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return sums.String(), os.WriteFile(filepath.Join(dir, sumsFile), []byte(sums.String()), 0o644)
}
