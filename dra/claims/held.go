package claims

// ReadHeld reads from the driver's folder which devices prepared claims hold, by device ID: who, for people
// ("claim team/train-0"). None where nothing was ever prepared. It changes nothing, and may be asked by other
// programs.
func ReadHeld(dir string) (map[string]string, error) {
	claims, err := readCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	held := map[string]string{}
	for _, c := range claims {
		for _, d := range c.Devices {
			for _, id := range d.holds() {
				held[id] = c.String()
			}
		}
	}
	return held, nil
}
