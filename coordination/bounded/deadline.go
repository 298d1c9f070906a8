package bounded

import "time"

// Question is how long a question of the kubelet's may take altogether. The kubelet has no deadline of its
// own and starts no other pod meanwhile (pkg/kubelet/cm/devicemanager/endpoint.go). It is divided where it is
// spent, and each part lies within the one that it is indented under:
//
//	Question        from the kubelet's call to the answer
//	  Alone           then what the plugin chooses alone is made ready, and costs nothing where all is well
//	  Coordinator     its answer, wherever it is; a takeover by the other plugin fits in
//	    Announced       for what the plugin announces, if the kubelet asks about that already
//	    Look            for all that has to be read, at once; it takes a millisecond as a rule
//	      File            for a file, which takes a tenth of one; a disk that hangs takes for ever
//	      Returned        for an Allocate that is still open: the plugin's word that it returned is on its way
//
// The coordinator has as long for an Allocate. For pairs it has Pairs: without an answer the container lacks
// what it is told, and not only the best devices.
const (
	Question    = 100 * time.Millisecond
	Alone       = Question / 2
	Coordinator = Question * 8 / 10
	Announced   = Coordinator - Look
	Look        = Question / 2
	File        = Look / 2
	Returned    = Look / 5
	Pairs       = 4 * Question
)
