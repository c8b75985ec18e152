from odradek.container.entry import main

raise SystemExit(main())
