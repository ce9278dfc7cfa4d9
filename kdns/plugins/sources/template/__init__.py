"""template CLASS TYPE [ZONE…] { … }: answers from Go templates."""
