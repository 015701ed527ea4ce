"""Setting up: the manifest, the doctor, and a Slack on this machine."""
