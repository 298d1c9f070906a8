package placement

// shares says how many partners each device serves. The pairs are as many as the larger half; each device of the larger half
// serves in one, each of the smaller in an equal number, and some, the extras, in one more.
type shares struct {
	gpus, vfs         int // wanted
	pairs             int // 0 where a half is empty
	perGPU, perVF     int // partners of each, without its extra
	extras            int // how many devices of the smaller half serve one more
	gpuExtra, vfExtra int // extras again, on the side that has them; 0 on the other
}

func newShares(gpus, vfs int) shares {
	s := shares{gpus: gpus, vfs: vfs}
	if gpus == 0 || vfs == 0 {
		return s
	}
	s.pairs = max(gpus, vfs)
	if vfs >= gpus {
		s.perGPU, s.perVF, s.extras = vfs/gpus, 1, vfs%gpus
		s.gpuExtra = s.extras
	} else {
		s.perGPU, s.perVF, s.extras = 1, gpus/vfs, gpus%vfs
		s.vfExtra = s.extras
	}
	return s
}

// units is how many pairs g GPUs and v VFs take part in when e of those that may have an extra do.
func (s *shares) units(g, v, e int) (ofGPUs, ofVFs int) {
	ofGPUs, ofVFs = s.perGPU*g, s.perVF*v
	if s.gpuExtra > 0 {
		ofGPUs += e
	} else if s.vfExtra > 0 {
		ofVFs += e
	}
	return ofGPUs, ofVFs
}

// mostExtras is how many extras g GPUs and v VFs can take.
func (s *shares) mostExtras(g, v int) int {
	if s.gpuExtra > 0 {
		return min(g, s.extras)
	}
	return min(v, s.extras) // s.extras is 0 where neither side has any
}
