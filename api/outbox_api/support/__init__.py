"""What drivers and writers share: secrets in files, TLS, threads, full servers, statements."""
