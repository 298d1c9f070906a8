package grants

import "io/fs"

// Host is where the files of the machine are.
type Host struct {
	Sys        fs.FS  // sysfs
	Dev        fs.FS  // the device nodes; in answers they are always below /dev
	DevinfoDir string // where Multus looks for device-info files
	CDI        *CDI   // nil: device nodes go through the kubelet
	PairsDir   string // where the pairs files of containers are kept
}

// CDI says how device nodes get into containers through the Container Device Interface instead of through the
// kubelet. Names and files are those of the stock plugin (pkg/cdi/cdi.go), so that it and its operator clean
// up after this one and the other way round.
type CDI struct {
	Dirs []string // folders of CDI specs: cleaned up in all of them, written to in the last
	// name devices in the field CDIDevices of the answer; else in an annotation, as the stock plugin does
	Field bool
}

// has reports whether there is a device node, named without /dev.
func (h Host) has(node string) bool {
	_, err := fs.Stat(h.Dev, node)
	return err == nil
}
