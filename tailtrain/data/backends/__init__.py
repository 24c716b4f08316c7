"""Storage backends from the control machine: an S3 bucket or a folder of Google Drive, through rclone."""
