"""Controllers at work in the process of the API."""
