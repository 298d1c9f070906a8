// Command tandem is for people: it shows how a node's GPUs and NICs lie to each other, records a machine, and
// tells what the plugins would choose. It needs no privilege, no cluster and no running plugin.
package main

import "os"

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }
