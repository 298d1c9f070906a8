// Package file replaces files whole.
package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace puts a file in place in one step, so that nobody ever reads half of one. After a power failure it
// may be empty.
func Replace(file string, content []byte, mode os.FileMode) error {
	return replace(file, content, mode, func(*os.File) error { return nil })
}

// ReplaceDurably is Replace that returns once the file would also be there after a power failure.
func ReplaceDurably(file string, content []byte, mode os.FileMode) error {
	if err := replace(file, content, mode, (*os.File).Sync); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close()) // the name is in the folder, which is a file of its own
}

func replace(file string, content []byte, mode os.FileMode, sync func(*os.File) error) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(file), temporaries)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	_, err = temporary.Write(content)
	if err == nil {
		err = temporary.Chmod(mode)
	}
	if err == nil {
		err = sync(temporary)
	}
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), file)
}

// temporaries is the pattern of the names that files have before they are in place.
const temporaries = ".tandem-*"

// RemoveTemporaries removes from a folder what a process that was killed has not put in place. Nobody else
// may be writing there.
func RemoveTemporaries(dir string) error {
	names, err := fs.Glob(os.DirFS(dir), temporaries)
	problems := []error{err}
	for _, name := range names {
		problems = append(problems, os.Remove(filepath.Join(dir, name)))
	}
	return errors.Join(problems...)
}
