"""template CLASS TYPE [ZONE…] { … }: answers that are written as Go templates."""
