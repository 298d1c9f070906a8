package daemon

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// Flags are the flags that both daemons have. The four folders are where a live node has them unless told otherwise, so
// that a recorded machine and a kubelet in a folder serve as well.
type Flags struct {
	SysfsRoot           string
	DevRoot             string
	KubeletDir          string
	RunDir              string
	LogFormat           LogFormat
	LogLevel            slog.Level
	PreferredAllocation bool

	glog glogFlags
}

// Register adds the flags to a set.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(&f.SysfsRoot, "sysfs-root", "/sys", "folder to read the machine from")
	set.StringVar(&f.DevRoot, "dev-root", "/dev", "folder with the device nodes")
	set.StringVar(&f.KubeletDir, "kubelet-dir", "/var/lib/kubelet", "the kubelet's root folder")
	set.StringVar(&f.RunDir, "run-dir", "/run/tandem", "folder of the coordination socket, shared by both daemons")
	set.TextVar(&f.LogFormat, "log-format", Text, "text or json")
	set.TextVar(&f.LogLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	set.BoolVar(&f.PreferredAllocation, "preferred-allocation", true, "tell the kubelet which devices to prefer; false leaves it to choose at random")
	f.glog.register(set)
}

// LogFormat is how log lines are written.
type LogFormat string

// The two formats.
const (
	Text LogFormat = "text"
	JSON LogFormat = "json"
)

// MarshalText prints the format as the flag spells it.
func (f LogFormat) MarshalText() ([]byte, error) { return []byte(f), nil }

// UnmarshalText accepts "text" and "json".
func (f *LogFormat) UnmarshalText(text []byte) error {
	switch format := LogFormat(text); format {
	case Text, JSON:
		*f = format
		return nil
	default:
		return fmt.Errorf("want %s or %s", Text, JSON)
	}
}

// Logger makes the daemon's logger: one line per decision, in the format and from the level that the flags name.
func Logger(f Flags, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == JSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
