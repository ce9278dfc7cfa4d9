"""Programs that make files of the repository; kdns imports none of them."""
