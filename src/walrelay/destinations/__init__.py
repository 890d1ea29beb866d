"""Where rows go: the contract (`base`), and one file or folder per destination."""
