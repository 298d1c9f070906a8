package nvidia

import (
	"os"
	"path/filepath"
	"testing"
)

// write writes a configuration file.
func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
