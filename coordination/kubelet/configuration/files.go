// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// FileName is kubeadm's name of the kubelet's configuration, below the kubelet's folder.
const FileName = "config.yaml"

// Files are the paths of the kubelet's configuration: a file and a folder of drop-ins, "" for none.
type Files struct {
	Config, Dir string
	Guessed     bool   // Config is kubeadm's default path, and may be missing
	Name        string // of Config, for people; "" for the path
	Root        string // prefix of the paths of a kubelet in another mount namespace, "" for none
}

// Shown returns the name of a file for people.
func (f Files) Shown(file string) string {
	if file != f.Config {
		return file
	}
	return cmp.Or(f.Name, file)
}

// FileError is an error of a file of the configuration.
type FileError struct {
	File string
	Err  error
}

// Error returns a text with the file once.
func (e *FileError) Error() string {
	var path *fs.PathError
	if errors.As(e.Err, &path) {
		return fmt.Sprintf("%s: %v", e.File, path.Err) // without the second name
	}
	return fmt.Sprintf("%s: %v", e.File, e.Err)
}

// Unwrap returns the error without the file.
func (e *FileError) Unwrap() error { return e.Err }

// dropIns returns the drop-ins in the kubelet's order of merging (mergeKubeletConfigurations in
// cmd/kubelet/app/server.go). The error is a [FileError].
func (f Files) dropIns() ([]string, error) {
	if f.Dir == "" {
		return nil, nil
	}
	var files []string
	dir := filepath.Join(resolve(f.Root, filepath.Dir(f.Dir)), filepath.Base(f.Dir)) // no walk follows a link
	at := dir
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		at = path
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &FileError{at, err}
	}
	return files, nil
}

// maxSize is the maximum size of a file of the configuration, in bytes.
const maxSize = 1 << 20

// read reads a file of at most maxSize bytes.
func (f Files) read(name string) ([]byte, error) {
	file, err := os.Open(resolve(f.Root, name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err == nil && len(content) > maxSize {
		err = fmt.Errorf("more than %d bytes", maxSize)
	}
	return content, err
}

// resolve follows the links of a path below root as a process does whose root that is. The kernel follows an
// absolute link from the root of the reader.
func resolve(root, path string) string {
	rest, below := strings.CutPrefix(path, root+"/")
	if root == "" || !below {
		return path
	}
	const maxLinks = 40 // as the kernel (path_resolution(7))
	at := root
	for links := 0; rest != "" && links <= maxLinks; {
		name, after, _ := strings.Cut(rest, "/")
		target, err := os.Readlink(filepath.Join(at, name))
		switch {
		case name == "..":
			at = cmp.Or(at[:max(len(root), strings.LastIndex(at, "/"))], root)
		case err != nil:
			at = filepath.Join(at, name)
		default:
			links++
			after = target + "/" + after
			if filepath.IsAbs(target) {
				at = root
			}
		}
		rest = strings.TrimLeft(after, "/")
	}
	return at
}
