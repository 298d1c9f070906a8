package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Layout makes a folder of the machine, for programs that want a sysfs root to read. The folder is made if it
// is not there; one that holds anything is refused. Nothing is written outside it.
func (m *Machine) Layout(dir string) error {
	if err := m.layout(dir); err != nil {
		return fmt.Errorf("lay out machine in %s: %w", filepath.Clean(dir), err)
	}
	return nil
}

func (m *Machine) layout(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return errors.New("the folder is not empty")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(m.root.layout(root, ""), root.Close())
}

func (n *node) layout(root *os.Root, dir string) error {
	for _, child := range n.children {
		name := path.Join(dir, child.name)
		if err := child.create(root, name); err != nil {
			return err
		}
		if err := child.layout(root, name); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) create(root *os.Root, name string) error {
	switch n.kind {
	case fs.ModeDir:
		return root.Mkdir(name, 0o755)
	case fs.ModeSymlink:
		return root.Symlink(n.text, name)
	default:
		return root.WriteFile(name, []byte(n.text), 0o644)
	}
}
