package solver

// Shares says how many partners each device serves. The pairs are as many as the larger half; each device of
// the larger half serves in one, each of the smaller in an equal number, and some, the extras, in one more.
type Shares struct {
	GPUs, VFs         int // wanted
	Pairs             int // 0 where a half is empty
	PerGPU, PerVF     int // partners of each, without its extra
	GPUExtra, VFExtra int // how many serve one more, of the smaller half; 0 of the other
	extras            int // the one of these that is not 0, if any
}

// NewShares are those of so many GPUs and VFs.
func NewShares(gpus, vfs int) Shares {
	s := Shares{GPUs: gpus, VFs: vfs}
	if gpus == 0 || vfs == 0 {
		return s
	}
	s.Pairs = max(gpus, vfs)
	if vfs >= gpus {
		s.PerGPU, s.PerVF, s.extras = vfs/gpus, 1, vfs%gpus
		s.GPUExtra = s.extras
	} else {
		s.PerGPU, s.PerVF, s.extras = 1, gpus/vfs, gpus%vfs
		s.VFExtra = s.extras
	}
	return s
}

// units is how many pairs g GPUs and v VFs take part in when e of those that may have an extra do.
func (s *Shares) units(g, v, e int) (ofGPUs, ofVFs int) {
	ofGPUs, ofVFs = s.PerGPU*g, s.PerVF*v
	if s.GPUExtra > 0 {
		ofGPUs += e
	} else if s.VFExtra > 0 {
		ofVFs += e
	}
	return ofGPUs, ofVFs
}

// mostExtras is how many extras g GPUs and v VFs can take.
func (s *Shares) mostExtras(g, v int) int {
	if s.GPUExtra > 0 {
		return min(g, s.extras)
	}
	return min(v, s.extras) // s.extras is 0 where neither side has any
}
